// SPDX-License-Identifier: Apache-2.0
// The connection of a Client. Callers sign and send their own requests under a lock; the reader thread takes in
// replies and wakes whom they are for, and sends heartbeats. Whatever breaks the connection is kept and thrown by every
// call from then on; but a member of a server that may come back waits for it: the reader connects again, says who it
// is and what it wrote, and sends once more what was not answered.
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
#include "rendezvous/socket.hpp"
#include "rendezvous/written.hpp"

namespace rondo::rendezvous {

// Authenticates a fresh connection. Nothing thrown for what may pass: then `reason` is set and null returned.
std::unique_ptr<ClientSession> authenticate(int fd, const Endpoint& endpoint, Deadline deadline, std::string& reason);

// Whether a server that may have done it already can do it once more, and nobody sees a difference.
bool may_be_asked_twice(const proto::Request& request);

class Client::Impl {
 public:
  Impl(Fd fd, std::unique_ptr<ClientSession> session, const Endpoint& endpoint)
      : endpoint_(endpoint),
        fd_(std::move(fd)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        session_(std::move(session)),
        server_(endpoint_text(endpoint.host, endpoint.port)),
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
  // From here on the server may go and come back.
  void is_member(proto::Join join, const proto::Membership& given);
  std::vector<proto::Told> inherit(Impl& before);  // what it has written and was answered is ours now
  const std::string& local_address() const { return local_address_; }
  const std::string& instance() const { return instance_; }

 private:
  struct Pending {
    proto::Request request{};
    Deadline deadline{};
    std::uint64_t sent_over = 0;  // which of the connections, from 1; 0: none. Under sending_
    std::condition_variable done{};
    std::optional<proto::Reply> reply{};
    void set_time();  // that is left
  };
  struct Away {
    std::chrono::system_clock::time_point since{};
    std::string reason{};
  };

  void send(std::uint64_t id, Pending& pending);
  void send_now(std::uint64_t id, const proto::Request& request);  // under sending_
  void put(std::string_view frame);
  void leave() noexcept;
  void wake() {
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof one) < 0) log::debug("rendezvous client: eventfd is full");
  }
  void read();
  void read_until_broken();
  void read_some();
  void deliver(std::vector<ClientSession::Answer>& answers);
  void beat();
  void break_off(const Error& error);
  Error too_late() const;  // under waiting_
  bool awaits_return() {
    const std::lock_guard lock(waiting_);
    return membership_.has_value();
  }
  // On the reader's thread. False: this client ends.
  bool await_return(const std::string& reason);
  bool try_to_return(std::string& reason);
  void log_of_job(const std::string& sentence) const;
  bool introduce(int fd, ClientSession& session, std::string& reason, bool& knows_all);
  void take(Fd fd, std::unique_ptr<ClientSession> session, bool knows_all);
  static std::optional<proto::Reply> ask(int fd, ClientSession& session, const proto::Request& request,
                                         std::string& reason);
  static std::string new_instance() {
    std::string bytes(16, '\0');
    fill_random(std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  const Origin origin_{};
  const Endpoint endpoint_;
  Fd fd_, stop_;
  std::unique_ptr<ClientSession> session_;  // sending: under sending_; receiving: the reader alone
  std::string server_, local_address_, instance_ = new_instance();
  std::atomic<int> beat_ms_{-1};
  std::atomic<bool> stopping_{false};
  std::mutex sending_;  // before waiting_
  std::uint64_t connection_ = 1;
  bool connected_ = true;
  std::mutex waiting_;  // guards what follows
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Pending*> pending_;
  std::optional<Error> broken_;
  std::optional<Away> away_;
  std::optional<proto::Join> membership_;  // of a server that may come back
  std::string server_name_;                // as it says itself
  Written written_;
  std::thread thread_;
};

}  // namespace rondo::rendezvous
