// SPDX-License-Identifier: Apache-2.0
// file:///path: rank 0 writes there where it serves, the others read it. Mode 0600, replaced atomically; a file that a
// dead run left behind costs a failed attempt and nothing else.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "rendezvous/client.hpp"

namespace rondo::runtime {

class MeetingFile {
 public:
  MeetingFile(std::filesystem::path path, const rendezvous::Endpoint& endpoint);
  ~MeetingFile();  // removes the file if it is still this one
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  std::filesystem::path path_;
  std::string text_;
};

struct FileMeeting {
  std::shared_ptr<rendezvous::Client> client;
  std::optional<rendezvous::Secret> secret;
  std::string host;  // where rank 0 serves
};
// Reads and tries until a server named there lets us in. Any error from it may be a dead run's: the last one is told
// at the deadline.
FileMeeting connect_by_file(const std::filesystem::path& path, Store::Deadline deadline);

}  // namespace rondo::runtime
