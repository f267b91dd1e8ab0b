// SPDX-License-Identifier: Apache-2.0
// spawn(): ranks as forked children. The caller waits; a supervisor process forks the ranks, serves their rendezvous
// and kills all of them when the caller is gone. It starts the server's thread after the last fork, so that every
// rank is forked from a process with one thread, and then tells the ranks the port.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <set>

#include <rondo/rondo.hpp>

#include "comm/base/duration.hpp"
#include "comm/base/fork.hpp"
#include "comm/base/process_state.hpp"
#include "comm/base/system_error.hpp"
#include "comm/setup/bootstrap.hpp"
#include "comm/setup/encryption_choice.hpp"
#include "rendezvous/client.hpp"
#include "rendezvous/observer.hpp"
#include "rendezvous/server.hpp"
#include "rendezvous/tls_socket.hpp"
#include "runtime/process/child.hpp"
#include "runtime/process/event_loop.hpp"
#include "runtime/process/exit_status.hpp"
#include "runtime/process/respite.hpp"
#include "runtime/process/supervised.hpp"
#include "runtime/process/threads.hpp"

namespace rondo {
namespace {

using Body = std::function<void(Communicator&)>;
using process::EventLoop;

constexpr std::chrono::seconds kGrace{5};
constexpr const char *kJob = "spawn", *kHost = "127.0.0.1";

// What a rank says when its body throws, in one write that a pipe keeps whole.
struct Report {
  int rank;
  int culprit;  // the rank that the exception blames, -1: none
  std::array<char, 1000> sentence;
};

struct Pipe {
  Fd reader, writer;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
};

class Spawned {
 public:
  Spawned(int world_size, const Body& body, process::Supervision& supervision)
      : world_size_(world_size), body_(body), supervision_(supervision), secret_(rendezvous::Secret::generate()) {}
  int run();

 private:
  int run_rank(int rank);
  Communicator join(int rank);
  void report(int rank, int culprit, const char* sentence) const;

  void serve();
  void control();
  void read_reports();
  struct Failure {
    int rank;
    std::string sentence;
    int exit_code;
    bool blames_another;
  };
  void on_end(int rank);
  void on_failure(Failure failure);
  void weigh(Failure failure);
  void judge();
  bool is_missed(int rank);
  void go_on();
  void end_left_behind();
  int say_verdict() const;
  void signal(int signal) const;

  const int world_size_;
  const Body& body_;
  process::Supervision& supervision_;
  rendezvous::Secret secret_;
  const bool encrypted_ = encryption_is_wanted();
  Pipe ports_, reports_;
  std::vector<process::Child> ranks_;
  std::unique_ptr<rendezvous::Server> server_;
  EventLoop loop_;
  int running_ = 0;
  process::Respite respite_{loop_, kGrace, [this](int number) { signal(number); }};
  std::optional<rendezvous::Observer> observer_;
  std::optional<Failure> failure_;  // the first since the ranks began, or went on, as far as is known
  std::vector<Failure> others_;     // since then
  std::vector<Failure> left_behind_;
  std::set<int> failed_;
  bool ends_left_behind_ = false;  // stopped ranks have been told to
  int end_signal_ = 0;
};

// In the rank.
int Spawned::run_rank(int rank) {
  int code = 1;
  const Origin origin;
  const auto failed = [&](int culprit, const char* sentence) {
    if (origin.is_here()) return report(rank, culprit, sentence);
    std::fprintf(stderr, "rondo: a child (pid %d) that rank %d forked failed: %s\n", ::getpid(), rank, sentence);
  };
  try {
    Communicator communicator = join(rank);
    try {
      body_(communicator);
      code = 0;
    } catch (const Error& error) {  // reported before the communicator goes and the others notice
      failed(error.culprit(), error.what());
    } catch (const std::exception& error) {
      failed(-1, error.what());
    } catch (...) {
      failed(-1, "an exception of an unknown type");
    }
  } catch (const std::exception& error) {
    failed(-1, error.what());
  }
  std::cout.flush();
  std::clog.flush();
  return code;
}

Communicator Spawned::join(int rank) {
  ports_.writer.reset();
  std::uint16_t port = 0;
  if (::read(ports_.reader.get(), &port, sizeof port) != static_cast<ssize_t>(sizeof port))
    throw Error(ErrorCode::system, "the process that spawned this rank is gone");
  const Options options{};
  const auto deadline = deadline_after(options.join_timeout);
  const auto client = rendezvous::Client::connect(
      {.host = kHost, .port = port, .secret = secret_, .job = kJob, .encrypted = encrypted_}, deadline);
  // Whom the server does not know it would not wait for when a communicator's survivors meet there. A rank on this
  // machine is gone when its connection is; one that is stopped is not.
  client->join({.rank = rank, .world_size = world_size_, .lease = std::chrono::milliseconds(0)}, deadline);
  Bootstrap bootstrap;
  bootstrap.rank = rank;
  bootstrap.world_size = world_size_;
  bootstrap.store = client;
  bootstrap.authenticator = rendezvous::make_authenticator(secret_, "peers");
  if (encrypted_) bootstrap.encryption = rendezvous::make_encryption(secret_, "peers");
  bootstrap.addresses = {client->local_address()};
  return make_communicator(std::move(bootstrap), options);
}

void Spawned::report(int rank, int culprit, const char* sentence) const {
  Report report{.rank = rank, .culprit = culprit, .sentence = {}};
  std::strncpy(report.sentence.data(), sentence, report.sentence.size() - 1);
  [[maybe_unused]] const auto written = ::write(reports_.writer.get(), &report, sizeof report);
}

// In the supervisor.
int Spawned::run() {
  for (int rank = 0; rank < world_size_; ++rank)
    ranks_.push_back(process::fork_child(supervision_.original_mask, [this, rank] { return run_rank(rank); }));
  running_ = world_size_;
  serve();
  ::fcntl(reports_.reader.get(), F_SETFL, O_NONBLOCK);
  loop_.watch(supervision_.control.get(), EPOLLIN, [this] { control(); });
  loop_.watch(reports_.reader.get(), EPOLLIN, [this] { read_reports(); });
  for (int rank = 0; rank < world_size_; ++rank)
    loop_.watch(ranks_[static_cast<std::size_t>(rank)].pidfd.get(), EPOLLIN, [this, rank] { on_end(rank); });
  loop_.run();
  return say_verdict();
}

int Spawned::say_verdict() const {
  if (failure_) {
    std::fprintf(stderr, "rondo: %s\n", failure_->sentence.c_str());
    return failure_->exit_code;
  }
  for (const Failure& failure : left_behind_)
    std::fprintf(stderr, "rondo: %s; the other ranks went on without it and finished\n", failure.sentence.c_str());
  return 0;
}

void Spawned::serve() {
  server_ = std::make_unique<rendezvous::Server>(
      rendezvous::ServerOptions{.secret = secret_, .encrypted = encrypted_, .job = kJob, .world_size = world_size_});
  const std::uint16_t port = server_->port();
  observer_.emplace(
      rendezvous::Endpoint{.host = kHost, .port = port, .secret = secret_, .job = kJob, .encrypted = encrypted_});
  for (int rank = 0; rank < world_size_; ++rank)
    if (::write(ports_.writer.get(), &port, sizeof port) != static_cast<ssize_t>(sizeof port))
      throw_errno("cannot tell the ranks the port");
}

void Spawned::control() {
  unsigned char received = 0;
  if (::read(supervision_.control.get(), &received, 1) != 1) return loop_.stop();  // all is killed
  if (end_signal_ == received && received == SIGINT) return signal(SIGKILL);
  signal(received == SIGTSTP ? SIGSTOP : received);
  if (received == SIGUSR1 || received == SIGUSR2 || received == SIGTSTP || received == SIGCONT) return;
  end_signal_ = received;
  loop_.at(EventLoop::Clock::now() + kGrace, [this] { signal(SIGKILL); });
}

void Spawned::read_reports() {
  Report report;
  while (::read(reports_.reader.get(), &report, sizeof report) == static_cast<ssize_t>(sizeof report))
    on_failure({.rank = report.rank,
                .sentence = fmt::format("rank {} (pid {}) failed: {}", report.rank,
                                        ranks_[static_cast<std::size_t>(report.rank)].pid, report.sentence.data()),
                .exit_code = 1,
                .blames_another = report.culprit >= 0 && report.culprit != report.rank});
}

void Spawned::on_end(int rank) {
  auto& child = ranks_[static_cast<std::size_t>(rank)];
  const auto status = process::try_reap(child.pidfd.get());
  if (!status) return;
  loop_.forget(child.pidfd.get());
  child.pidfd.reset();
  read_reports();
  if (!status->ok())
    on_failure({.rank = rank,
                .sentence = fmt::format("rank {} (pid {}) {}", rank, child.pid, status->describe()),
                .exit_code = status->shell_code(),
                .blames_another = false});
  if (--running_ > 0) return end_left_behind();
  while (failure_ && is_missed(failure_->rank)) go_on();
  loop_.stop();
}

void Spawned::on_failure(Failure failure) {
  if (failed_.insert(failure.rank).second && !respite_.told_to_end()) weigh(std::move(failure));
}

// The first failure counts, but one that blames another rank gives way to that rank's own: the others may notice the
// end of a process before we do.
void Spawned::weigh(Failure failure) {
  const bool first = !failure_;
  if (end_signal_ != 0) {
    failure_ = {-1, "stopped by " + process::signal_name(end_signal_), 128 + end_signal_, false};
  } else if (first) {
    failure_ = std::move(failure);
  } else {
    if (failure_->blames_another && !failure.blames_another) std::swap(*failure_, failure);
    others_.push_back(std::move(failure));
  }
  if (first) respite_.later(process::Respite::kSettle, [this] { judge(); });
}

// The others had their time: whether they go on without the rank that failed.
void Spawned::judge() { is_missed(failure_->rank) ? go_on() : respite_.tell_to_end(); }

bool Spawned::is_missed(int rank) {
  if (rank < 0 || end_signal_ != 0 || respite_.told_to_end()) return false;
  try {
    return observer_->is_missed(rank);
  } catch (const Error& error) {
    std::fprintf(stderr, "rondo: %s\n", error.what());
    return false;
  }
}

// What else failed meanwhile has its own turn.
void Spawned::go_on() {
  if (running_ > 0) std::fprintf(stderr, "rondo: the other ranks go on without rank %d\n", failure_->rank);
  left_behind_.push_back(std::move(*failure_));
  failure_.reset();
  respite_.begin_next();
  for (Failure& other : std::exchange(others_, {})) weigh(std::move(other));
  if (running_ > 0) end_left_behind();
}

// A rank that was stopped while the others shrank does nothing any more, and would be waited for for ever.
void Spawned::end_left_behind() {
  if (ends_left_behind_) return;
  std::vector<int> stopped;
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto& child = ranks_[static_cast<std::size_t>(rank)];
    if (!child.pidfd) continue;
    if (!is_halted(child.pid) || !is_missed(rank)) return;
    stopped.push_back(rank);
  }
  ends_left_behind_ = true;
  std::fprintf(stderr, "rondo: %s\n", process::left_behind_sentence(stopped).c_str());
  respite_.end_left_behind();
}

void Spawned::signal(int signal) const {
  for (const auto& rank : ranks_)
    if (rank.pidfd) ::kill(rank.pid, signal);
}

}  // namespace

int spawn(int world_size, Body body) {
  if (world_size < 1)
    throw Error(ErrorCode::invalid_argument, fmt::format("spawn needs at least one rank, not {}", world_size));
  if (world_size > kMostRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("spawn of {} ranks: it takes {} at most", world_size, kMostRanks));
  }
  if (!body) throw Error(ErrorCode::invalid_argument, "spawn: there is no function for the ranks to run");
  if (const int others = process::count_other_threads(); others > 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("spawn forks its ranks, which would lack {} other thread{} of this process and wait for "
                            "{} for ever: call it before anything starts threads (OpenMP, BLAS and libtorch do at "
                            "their first use), or start the ranks with rondorun",
                            others, others == 1 ? "" : "s", others == 1 ? "it" : "them"));
  }
  std::cout.flush();
  return process::run_supervised(process::Launcher::guest, [&](process::Supervision& supervision) {
    return Spawned(world_size, body, supervision).run();
  });
}

}  // namespace rondo
