// SPDX-License-Identifier: Apache-2.0
// Gatherings of members that failed because one was lost, for those who come later: the lost one may be back by then,
// and they would wait for others who went on without them. Each hears of it once; who has heard may begin it anew.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <rondo/error.hpp>

namespace rondo::rendezvous {

class Unheard {
 public:
  // `heard`: a bit for each participant.
  void note(const std::string& gathering, const Error& error, std::vector<bool> heard);
  std::optional<Error> take(const std::string& gathering, std::uint32_t index, std::uint32_t participants);
  void clear();

 private:
  struct Failure {
    Error error;
    std::vector<bool> heard;
  };
  void forget(const std::string& gathering);

  std::map<std::string, Failure> failures_;
  std::deque<std::string> oldest_;  // first
  std::size_t participants_ = 0;    // of all of them
};

}  // namespace rondo::rendezvous
