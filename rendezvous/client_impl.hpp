// SPDX-License-Identifier: Apache-2.0
// The connection of a Client. Callers sign and send their own requests under a lock; the reader thread takes in
// replies and wakes whom they are for, and sends heartbeats. Whatever breaks the connection is kept and thrown by every
// call from then on.
#pragma once
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <rondo/error.hpp>

#include "comm/base/log.hpp"
#include "comm/base/system_error.hpp"
#include "kernels/thread.hpp"
#include "rendezvous/client.hpp"
#include "rendezvous/client_session.hpp"
#include "rendezvous/connect.hpp"

namespace rondo::rendezvous {

class Client::Impl {
 public:
  Impl(Fd fd, std::unique_ptr<ClientSession> session, std::string server)
      : fd_(std::move(fd)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        session_(std::move(session)),
        server_(std::move(server)),
        local_address_(local_address_of(fd_.get())) {
    if (!stop_) throw_errno("cannot create an eventfd");
    thread_ = start_thread("rondo-client", [this] { read(); });
  }
  ~Impl() {
    leave();
    wake();
    thread_.join();
  }

  proto::Reply call(proto::Request request, Deadline deadline);
  proto::Reply call(proto::Request request) {  // one that waits for nothing
    return call(std::move(request), std::chrono::steady_clock::now() + std::chrono::seconds(30));
  }
  void keep_lease(std::chrono::milliseconds lease) {
    beat_ms_ = static_cast<int>(std::max<std::int64_t>(1, lease.count() / 4));
    wake();
  }
  const std::string& local_address() const { return local_address_; }
  const std::string& instance() const { return instance_; }

 private:
  struct Pending {
    std::condition_variable done{};
    std::optional<proto::Reply> reply{};
  };

  void send(std::uint64_t id, const proto::Request& request);
  void put(std::string_view frame);
  void leave() noexcept;
  void wake() {
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof one) < 0) log::debug("rendezvous client: eventfd is full");
  }
  void read();
  void read_some();
  void deliver(std::vector<ClientSession::Answer>& answers);
  void beat();
  void break_off(const Error& error);
  static std::string new_instance() {
    std::string bytes(16, '\0');
    fill_random(std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  const Origin origin_{};
  Fd fd_, stop_;
  std::unique_ptr<ClientSession> session_;  // sending: under sending_; receiving: the reader alone
  std::string server_, local_address_, instance_ = new_instance();
  std::atomic<int> beat_ms_{-1};
  std::atomic<bool> stopping_{false};
  std::mutex sending_;
  std::mutex waiting_;  // guards what follows
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Pending*> pending_;
  std::optional<Error> broken_;
  std::thread thread_;
};

}  // namespace rondo::rendezvous
