// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/loss_word.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "comm/setup/growth_word.hpp"

namespace rondo::comm {

Error LossWord::cause_of(const Error& error) const {
  const bool late = error.error_code() == ErrorCode::timeout;
  const bool misses = (late || error.error_code() == ErrorCode::peer_lost) && error.culprit() >= 0;
  if (late && !misses) return error;  // which is that the store does not answer
  const Error word = misses ? error
                            : Error(ErrorCode::peer_lost,
                                    fmt::format("rank {} (host {}, pid {}) gave up as the ranks met: {}", rank_,
                                                host_name(), ::getpid(), error.what()),
                                    rank_);
  try {
    tell(word);
    return misses ? said().value_or(error) : error;
  } catch (const std::exception& of_store) {  // which is gone: the error is all that is known
    log::debug("{}: {}", name_, of_store.what());
    return error;
  }
}

std::optional<Error> LossWord::said() const {
  const auto word = place_.try_get(key());
  return word ? GrowthWord::decode(*word).error : std::nullopt;
}

// The first word counts. Where the connection broke meanwhile nobody knows whether this one was.
void LossWord::tell(const Error& word) const {
  try {
    place_.compare_and_set(key(), std::nullopt, GrowthWord{.error = word}.encode());
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::peer_lost) throw;
    log::debug("{}: {}", name_, error.what());
  }
}

}  // namespace rondo::comm
