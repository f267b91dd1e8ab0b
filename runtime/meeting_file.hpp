// SPDX-License-Identifier: Apache-2.0
// file:///path: rank 0 writes there where it serves, the others read it. Mode 0600. Rank 0 holds a lock on the file as
// long as it serves, which ends with its process, however that ends: what a dead run left behind is nobody's, and of
// two rank 0 the second meets the first.
#pragma once
#include <filesystem>
#include <string>

#include "runtime/meeting_point.hpp"

namespace rondo::runtime {

// What rank 0 writes there, and what it says; nothing and the reason, or an error: nobody's who serves.
std::string meeting_file_text(const rendezvous::Endpoint& endpoint);
std::optional<rendezvous::Endpoint> read_meeting_file(const std::string& text, std::string& reason);

class FilePoint final : public MeetingPoint {
 public:
  // Rank 0 serves at `host`, an address of this machine. Ranks of another `job` do not meet there.
  FilePoint(std::filesystem::path path, std::string host, std::string job, bool encrypted)
      : path_(std::move(path)), host_(std::move(host)), job_(std::move(job)), encrypted_(encrypted) {}
  std::string key() const override { return "file|" + path_.string(); }
  std::shared_ptr<Hosting> try_host(int world_size) override;
  std::optional<rendezvous::Endpoint> find(std::string& reason, Store::Deadline deadline) override;
  bool may_be_stale() const override { return true; }
  std::string describe() const override { return "the file " + path_.string(); }

 private:
  std::filesystem::path path_;
  std::string host_, job_;
  bool encrypted_;
  bool held_ = false;  // by another process, when last seen
};

}  // namespace rondo::runtime
