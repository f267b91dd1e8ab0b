// SPDX-License-Identifier: Apache-2.0
#include "comm/device/proxy/proxy.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "comm/base/fd.hpp"
#include "comm/base/log.hpp"
#include "comm/base/pulse.hpp"
#include "comm/base/system_error.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/device/proxy/proxy_link.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm::device {
namespace {

using Clock = std::chrono::steady_clock;

// Nobody wakes the thread when a kernel posts a step, so it looks. Often while kernels run, as far as it knows; seldom
// after that, for a graph may be replayed at any time. 0: it yields.
constexpr std::chrono::nanoseconds tick_after(Clock::duration quiet) {
  using namespace std::chrono_literals;
  if (quiet <= 200us) return 0us;
  if (quiet <= 20ms) return 50us;
  return quiet <= 1s ? 500us : 2ms;
}
static_assert(tick_after(Clock::duration::max()) == std::chrono::milliseconds(2));

}  // namespace

// The thread uses everything here; others use wake_ and the two flags.
struct Proxy::Impl {
  Impl(const Regions& regions, Communicator links, std::function<bool()> failed, Fail fail, std::span<const int> names)
      : links_(std::move(links)),
        team_(rondo::detail::impl_of(links_).team()),
        failed_(std::move(failed)),
        fail_(std::move(fail)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_) throw_errno("cannot make the proxy's doorbell");
    const std::size_t piece = team_.segment().shape().slice_bytes;
    for (int peer = 0; peer < regions.cards().size(); ++peer) {
      if (regions.route(peer) != Route::proxy) continue;
      peers_.emplace_back(peer);
      peer_links_.emplace_back(regions, peer, team_.send_link(peer), team_.recv_link(peer), piece, names);
    }
    thread_ = start_thread("rondo-proxy", [this] { run(); });
  }
  ~Impl() {
    stopping_ = true;
    ring();
    thread_.join();
  }
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);  // full: it rings anyway
  }
  void launched() {
    if (!launched_.exchange(true)) ring();
  }

 private:
  void run() {
    try {
      while (!failed_() && !(stopping_ && parted())) {
        if (launched_.exchange(false) || progress())
          quiet_since_ = Clock::now();
        else
          wait();
      }
    } catch (const Error& error) {
      if (!stopping_) fail_(error.error_code(), error.culprit(), error.what());
    } catch (const std::exception& error) {
      fail_(ErrorCode::system, team_.rank(), fmt::format("the proxy of rank {}: {}", team_.rank(), reason_of(error)));
    }
  }

  bool progress() {
    team_.failure().check();
    bool moved = false;
    for (std::size_t i = 0; i < peer_links_.size(); ++i) {
      try {
        moved |= peer_links_[i].progress();
      } catch (const Error& error) {
        if (error.error_code() != ErrorCode::peer_lost) throw;
        team_.await_verdict(peers_[i]);  // its control connection knows whether it went in good order
        team_.failure().check();
        if (!team_.departed(peers_[i])) throw;
        peer_links_[i].peer_left();
        moved = true;
      }
    }
    return moved;
  }

  // Told to end: has everybody got everything, or is it too late for that?
  bool parted() {
    if (leave_by_ == Clock::time_point{}) {
      leave_by_ = Clock::now() + kPatiencesToLeave * team_.link_patience();
      for (ProxyLink& link : peer_links_) link.leave();
    }
    if (std::all_of(peer_links_.begin(), peer_links_.end(), [](ProxyLink& link) { return link.finished(); }))
      return true;
    if (Clock::now() <= leave_by_) return false;
    log::warn("rank {} destroyed its communicator, and what its kernels had sent to other nodes may not have arrived",
              team_.rank());
    return true;
  }

  void wait() {
    const auto pause = tick_after(Clock::now() - quiet_since_);
    if (pause.count() == 0) {
      std::this_thread::yield();
      return;
    }
    polled_.assign(1, {wake_.get(), POLLIN, 0});
    for (ProxyLink& link : peer_links_) {
      if (link.gone()) continue;
      add(link.recv_wake());
      if (link.backlogged()) add(link.send_wake());
    }
    const timespec tick{0, pause.count()};
    if (::ppoll(polled_.data(), polled_.size(), &tick, nullptr) > 0 && polled_[0].revents != 0) {
      std::uint64_t rung;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &rung, sizeof rung);
    }
  }
  void add(const Wake& wake) {
    if (wake.by == Wake::By::descriptor) polled_.push_back({wake.fd, wake.events, 0});
  }

  Communicator links_;
  comm::Team& team_;
  std::function<bool()> failed_;
  Fail fail_;
  Fd wake_;
  std::atomic<bool> stopping_{false}, launched_{false};
  std::vector<int> peers_;
  std::vector<ProxyLink> peer_links_;  // of peers_
  std::vector<pollfd> polled_;
  Clock::time_point quiet_since_ = Clock::now(), leave_by_{};
  std::thread thread_;
};

Proxy::Proxy(const Regions& regions, Communicator links, std::function<bool()> failed, Fail fail,
             std::span<const int> names)
    : impl_(std::make_unique<Impl>(regions, std::move(links), std::move(failed), std::move(fail), names)) {}
Proxy::~Proxy() = default;
void Proxy::launched() { impl_->launched(); }

}  // namespace rondo::comm::device
