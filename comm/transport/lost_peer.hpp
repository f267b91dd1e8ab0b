// SPDX-License-Identifier: Apache-2.0
// What a rank says when the connection to a peer has failed.
#pragma once
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>

#include <rondo/error.hpp>

namespace rondo::comm {

// error: an errno; 0: the peer closed it.
[[noreturn]] inline void throw_lost(int peer, int error) {
  throw Error(ErrorCode::peer_lost,
              error == 0 ? fmt::format("rank {} closed its connection", peer)
                         : fmt::format("rank {} is gone or out of reach: {}", peer, std::strerror(error)),
              peer);
}

// Of an encrypted connection, which then is of no use any more.
inline std::string changed_on_its_way(int peer, std::string_view connection) {
  return fmt::format("what went over the encrypted {} connection with rank {} was changed on its way", connection,
                     peer);
}

}  // namespace rondo::comm
