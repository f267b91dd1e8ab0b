// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observer.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "comm/base/plain_text.hpp"
#include "rendezvous/growths.hpp"
#include "rendezvous/survivals.hpp"

namespace rondo::rendezvous {

Client& Observer::client() {
  constexpr std::chrono::seconds kLimit{1};
  if (!client_) client_ = Client::connect(endpoint_, std::chrono::steady_clock::now() + kLimit);
  return *client_;
}

bool Observer::is_missed(int rank) { return client().try_get(missed_key(rank)).has_value(); }

std::optional<int> Observer::joined_as(const std::string& calls_itself) {
  const auto said = client().try_get(joined_key(calls_itself));
  if (!said) return std::nullopt;
  const auto* const text = reinterpret_cast<const char*>(said->data());
  int rank = -1;
  const auto [end, error] = std::from_chars(text, text + said->size(), rank);
  if (error == std::errc() && end == text + said->size() && rank >= 0) return rank;
  throw Error(ErrorCode::corrupt_message,
              fmt::format("the rendezvous server says that '{}' has joined as '{}', which is no rank", calls_itself,
                          plain_text({text, said->size()})));
}

}  // namespace rondo::rendezvous
