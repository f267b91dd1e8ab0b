// SPDX-License-Identifier: Apache-2.0
#include "comm/call/monitored_barrier.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/base/duration.hpp"

namespace rondo::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Rank 0's verdict, which knows more, comes a moment after its deadline.
constexpr std::chrono::milliseconds kVerdictGrace{250};

// How rank 0 ended a barrier, as one word that is never 0: which it was, how many are missing, and the first of them.
constexpr int kRankBits = 20, kBarrierBits = 24;
static_assert(std::uint64_t{1} << kRankBits == kMostAttending);

std::uint64_t name_of(std::uint64_t barrier) { return barrier % ((std::uint64_t{1} << kBarrierBits) - 1) + 1; }
std::uint64_t verdict_of(std::uint64_t barrier, const std::vector<int>& missing) {
  const auto first = missing.empty() ? 0 : static_cast<std::uint64_t>(missing.front());
  return name_of(barrier) << 2 * kRankBits | missing.size() << kRankBits | first;
}
bool is_of(std::uint64_t verdict, std::uint64_t barrier) { return verdict >> 2 * kRankBits == name_of(barrier); }
std::uint64_t missing_in(std::uint64_t verdict) { return verdict >> kRankBits & (kMostAttending - 1); }
int first_missing_in(std::uint64_t verdict) { return static_cast<int>(verdict & (kMostAttending - 1)); }

std::string in_words(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

[[noreturn]] void refuse(std::uint64_t barrier, int culprit, const std::string& what) {
  throw Error(ErrorCode::timeout,
              fmt::format("monitored barrier #{}: {}; the communicator can still be used", barrier, what), culprit);
}

}  // namespace

void MonitoredBarrier::run(std::chrono::milliseconds timeout, bool waits_for_all) {
  timeout_ = timeout;
  until_ = deadline_after(timeout);
  ++count_;
  team_.attend(2 * count_, 0);
  if (team_.rank() == 0) return lead(waits_for_all);
  until_ = at_most_for_ever(until_ + kVerdictGrace);
  follow();
}

void MonitoredBarrier::lead(bool waits_for_all) {
  std::vector<int> missing, impatient;
  for (int r = 1; r < team_.size(); ++r) {
    const State state = await(r);
    if (state == State::present) continue;
    missing.push_back(r);
    if (state == State::gave_up) impatient.push_back(r);
    if (!waits_for_all) break;
  }
  team_.attend(2 * count_, verdict_of(count_, missing));
  if (missing.empty()) return;
  std::string what =
      fmt::format("{} did not come within {:.1f} s", in_words(missing), static_cast<double>(timeout_.count()) / 1e3);
  if (!impatient.empty()) what += fmt::format(" ({} came, and gave up before rank 0 did)", in_words(impatient));
  refuse(count_, missing.front(), what);
}

void MonitoredBarrier::follow() {
  for (;;) {
    team_.failure().check();
    const std::uint64_t verdict = team_.attendance(0).verdict(count_).load(std::memory_order_acquire);
    if (is_of(verdict, count_)) {
      const std::uint64_t missing = missing_in(verdict);
      if (missing == 0) return;
      const std::string more = missing == 1 ? "" : fmt::format(", nor did {} more", missing - 1);
      refuse(count_, first_missing_in(verdict),
             fmt::format("rank {} did not come in time{}, says rank 0", first_missing_in(verdict), more));
    }
    if (team_.departed(0) || !sleep(0)) give_up();
  }
}

MonitoredBarrier::State MonitoredBarrier::look_at(int peer) const {
  const std::uint64_t entered = team_.attendance(peer).entered.load(std::memory_order_acquire);
  if (entered == 2 * count_) return State::present;
  return entered < 2 * count_ ? State::absent : State::gave_up;
}

MonitoredBarrier::State MonitoredBarrier::await(int peer) const {
  for (;;) {
    team_.failure().check();
    const State state = look_at(peer);
    if (state != State::absent || team_.departed(peer) || !sleep(peer)) return state;
  }
}

// A while, or until something happens; false: it is too late.
bool MonitoredBarrier::sleep(int peer) const {
  constexpr std::chrono::milliseconds kLookEvery{50};  // whether it lives
  if (!team_.sleep_until(std::min(until_, std::chrono::steady_clock::now() + kLookEvery))) return false;
  team_.look_whether_it_lives(peer);
  return true;
}

// From here on rank 0 knows that this rank no longer waits.
void MonitoredBarrier::give_up() {
  team_.attend(2 * count_ + 1, 0);
  std::vector<int> missing;
  for (int r = 0; r < team_.size(); ++r) {
    if (r != team_.rank() && look_at(r) == State::absent) missing.push_back(r);
  }
  const double limit_s = static_cast<double>(timeout_.count()) / 1e3;
  if (missing.empty()) refuse(count_, 0, fmt::format("rank 0 did not say within {:.1f} s that all have come", limit_s));
  refuse(count_, missing.front(), fmt::format("{} did not come within {:.1f} s", in_words(missing), limit_s));
}

}  // namespace rondo::comm
