// SPDX-License-Identifier: Apache-2.0
// Why calls go the way they go, in the log: one line at debug level whenever calls of a collective and of about a size
// first take a way. All ranks choose alike, so rank 0 speaks for them. Used by the thread that runs the calls.
#pragma once
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include <rondo/collective.hpp>

#include "comm/setup/bootstrap.hpp"

namespace rondo::comm {

class ChoiceLog {
 public:
  explicit ChoiceLog(const Bootstrap& bootstrap);

  bool speaks() const { return speaks_; }  // ask first: to find out why may cost more than a short call
  // Bytes are those of a rank's larger buffer. why(), a string, is asked for if the line is new.
  template <class Why>
  void explain(Collective collective, std::size_t bytes, std::string_view way, Why why) {
    if (is_new(collective, bytes, way)) write(collective, bytes, way, why());
  }

 private:
  bool is_new(Collective collective, std::size_t bytes, std::string_view way);
  void write(Collective collective, std::size_t bytes, std::string_view way, const std::string& why) const;

  const bool speaks_;
  const std::string name_;                                    // of the communicator
  std::set<std::tuple<Collective, int, std::string>> known_;  // the number: bits of the bytes
};

}  // namespace rondo::comm
