// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/absences.hpp"

#include <chrono>

#include "comm/base/log.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};
constexpr int kLooks = 5;  // in a row: who is stopped for a moment is awaited

}  // namespace

Absences::Absences(const Team& failed, Say say, Stopped stopped)
    : failed_(failed), say_(std::move(say)), stopped_(stopped), looks_(static_cast<std::size_t>(failed.size())) {
  thread_ = start_thread("rondo-absences", [this] { run(); });
}

Absences::~Absences() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void Absences::run() {
  int pause = kLooks, left = pause;
  for (std::unique_lock lock(mutex_); !over_; ends_.wait_for(lock, kLookEvery, [this] { return over_; })) {
    lock.unlock();
    const bool more = look(), again = !absent_.empty() && --left <= 0;
    if (more || again) {
      const bool heard = tell();
      if (heard && again) pause *= 2;
      left = heard ? pause : 1;
    }
    lock.lock();
  }
}

bool Absences::look() {
  const std::size_t before = absent_.size();
  for (int r = 0; r < failed_.size(); ++r) {
    int& looks = looks_[static_cast<std::size_t>(r)];
    if (r == failed_.rank() || looks == kLooks) continue;
    if (failed_.has_ended(r) || failed_.has_given_up(r)) {  // it may have met others, and have said goodbye to these
      looks = kLooks;
    } else if (stopped_ == Stopped::absent) {
      looks = failed_.is_halted(r) ? looks + 1 : 0;
    }
    if (looks == kLooks) absent_.push_back(r);
  }
  return absent_.size() > before;
}

bool Absences::tell() {
  try {
    say_(absent_);
    return true;
  } catch (const Error& error) {  // which the survivors' own question meets, too; another store may take its place
    log::debug("cannot say who is missing: {}", error.what());
    return false;
  }
}

}  // namespace rondo::comm
