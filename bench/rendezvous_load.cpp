// SPDX-License-Identifier: Apache-2.0
// How long many authenticated clients take to join a server: clients in processes of their own, each one epoll loop
// over the protocol code, no thread per client. Ends non-zero when somebody cannot join or --max-seconds or --max-mib
// is exceeded.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>

#include <rondo/error.hpp>

#include "comm/base/fd.hpp"
#include "comm/base/plain_text.hpp"
#include "comm/base/standard_streams.hpp"
#include "comm/base/system_error.hpp"
#include "rendezvous/client_session.hpp"
#include "rendezvous/server.hpp"
#include "rendezvous/socket.hpp"

namespace {

using namespace rondo;
using Clock = std::chrono::steady_clock;

constexpr int kConnectingAtOnce = 256;    // of one process; the kernel's queue of unaccepted connections is 4096
constexpr int kClientsPerAddress = 4000;  // far from the end of an address' ports, where searching them costs
constexpr std::chrono::seconds kGiveUp{60};

struct Flags {
  std::vector<int> clients{1000, 10000};
  int processes = 2, runs = 3;
  double max_seconds = 0, max_mib = 0;
};

// What a client process is told through its pipe, and what it answers.
struct Order {
  std::uint16_t port;
  int first, count, world_size;
  std::array<char, 2 * rendezvous::Secret::kBytes> secret;
};
struct Result {
  bool ok;
  double cpu_seconds;
  std::array<char, 240> error;
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}
double peak_mib() {  // of this process, which has the server
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

template <class T>
void put(int fd, const T& value) {
  if (::write(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) throw_errno("cannot write to a pipe");
}
template <class T>
T take(int fd) {
  T value;
  if (::read(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) {
    throw Error(ErrorCode::system, "a client process ended without a result");
  }
  return value;
}

sockaddr_in loopback(int last_byte, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(0x7f000000U + static_cast<unsigned>(last_byte));
  return address;
}

class Load {
 public:
  explicit Load(const Order& order)
      : order_(order),
        secret_(rendezvous::Secret::from_hex({order.secret.data(), order.secret.size()})),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw_errno("cannot create an epoll");
    clients_.reserve(static_cast<std::size_t>(order.count));
  }
  void run() {
    const auto deadline = Clock::now() + kGiveUp;
    while (joined_ < order_.count) {
      while (connecting_ < kConnectingAtOnce && static_cast<int>(clients_.size()) < order_.count) begin();
      std::array<epoll_event, 256> events;
      const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), 1000);
      if (ready < 0 && errno != EINTR) throw_errno("cannot wait for the clients' sockets");
      for (int i = 0; i < ready; ++i) serve(clients_[events[static_cast<std::size_t>(i)].data.u64]);
      if (Clock::now() > deadline) {
        throw Error(ErrorCode::timeout, fmt::format("{} of {} clients had joined after 60 s", joined_, order_.count));
      }
    }
  }

 private:
  struct Client {
    int rank;
    Fd fd;
    std::unique_ptr<rendezvous::ClientSession> session;
    bool greeted = false, asked = false;
  };

  void begin() {
    const int index = static_cast<int>(clients_.size()), rank = order_.first + index;
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) throw_errno("cannot create a socket");
    const int on = 1;
    const linger abort_at_close{1, 0};  // leaves no TIME_WAIT behind
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &abort_at_close, sizeof abort_at_close);
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    const sockaddr_in from = loopback(2 + rank / kClientsPerAddress, 0), to = loopback(1, order_.port);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) throw_errno("cannot bind");
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS) {
      throw_errno(fmt::format("client {} cannot connect", rank));
    }
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = static_cast<std::uint64_t>(index)}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) throw_errno("cannot watch a socket");
    clients_.push_back({rank, std::move(fd), std::make_unique<rendezvous::ClientSession>(secret_, "load")});
    ++connecting_;
  }

  void serve(Client& client) {
    if (!client.greeted) {
      int failed = 0;
      socklen_t size = sizeof failed;
      ::getsockopt(client.fd.get(), SOL_SOCKET, SO_ERROR, &failed, &size);
      if (failed != 0) {
        throw Error(ErrorCode::system, fmt::format("client {} cannot connect: {}", client.rank, std::strerror(failed)));
      }
      client.greeted = true;
      say(client, client.session->hello());
    }
    std::array<std::byte, 4096> buffer;
    const ssize_t got = ::recv(client.fd.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) throw Error(ErrorCode::peer_lost, fmt::format("client {} was disconnected", client.rank));
    std::string to_send;
    std::vector<rendezvous::ClientSession::Answer> answers;
    client.session->received({buffer.data(), static_cast<std::size_t>(got)}, to_send, answers);
    if (client.session->ready() && !client.asked) {
      client.asked = true;
      --connecting_;
      to_send += client.session->request(1, join_of(client));
    }
    if (!to_send.empty()) say(client, to_send);
    for (const auto& answer : answers) check(client, answer.reply);
  }

  rondo::proto::Request join_of(const Client& client) const {
    rondo::proto::Request request;
    request.set_timeout_ms(60'000);
    rondo::proto::Join& join = *request.mutable_join();
    join.set_rank(client.rank);
    join.set_world_size(order_.world_size);
    join.set_local_rank(-1);
    join.set_node(fmt::format("node{}", client.rank / 8));
    join.set_host("load");
    join.set_lease_ms(10'000);
    return request;
  }

  void check(const Client& client, const rondo::proto::Reply& reply) {
    if (reply.has_failure()) throw rendezvous::error_of(reply.failure());
    const auto& membership = reply.membership();
    const int rank = static_cast<int>(membership.rank()), node = static_cast<int>(membership.node());
    if (rank != client.rank || node != client.rank / 8) {
      throw Error(ErrorCode::mismatch, fmt::format("rank {} was told rank {} on node {}", client.rank, rank, node));
    }
    ++joined_;
  }

  static void say(const Client& client, const std::string& text) {
    if (::send(client.fd.get(), text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
      throw_errno(fmt::format("client {} cannot send", client.rank));
    }
  }

  Order order_;
  rendezvous::Secret secret_;
  Fd epoll_;
  std::vector<Client> clients_;
  int connecting_ = 0, joined_ = 0;
};

// A child process: waits for its order, joins, reports, and holds its clients until it is told to end.
[[noreturn]] void client_process(int orders, int results) {
  Result result{.ok = true, .cpu_seconds = 0, .error = {}};
  try {
    Load load(take<Order>(orders));
    try {
      load.run();
    } catch (const std::exception& error) {
      result.ok = false;
      std::strncpy(result.error.data(), error.what(), result.error.size() - 1);
    }
    result.cpu_seconds = cpu_seconds();
    put(results, result);
    char end;
    if (::read(orders, &end, 1) < 0) ::_exit(1);
  } catch (const std::exception&) {
    ::_exit(1);
  }
  ::_exit(0);
}

struct Child {
  pid_t pid = -1;
  Fd orders, results;
};

Child start_child() {
  int orders[2], results[2];
  if (::pipe2(orders, O_CLOEXEC) != 0 || ::pipe2(results, O_CLOEXEC) != 0) throw_errno("cannot make pipes");
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("cannot fork");
  if (pid == 0) {
    ::close(orders[1]);
    client_process(orders[0], results[1]);
  }
  ::close(orders[0]);
  ::close(results[1]);
  return {pid, Fd(orders[1]), Fd(results[0])};
}

struct Timing {
  double seconds = 0, server_cpu = 0, client_cpu = 0;
};

Timing run_once(int clients, int processes) {
  std::vector<Child> children;
  for (int i = 0; i < processes; ++i) children.push_back(start_child());  // before the server's thread
  const rendezvous::Secret secret = rendezvous::Secret::generate();
  const rendezvous::Server server({.secret = secret, .job = "load", .world_size = clients});
  Order order{.port = server.port(), .first = 0, .count = 0, .world_size = clients, .secret = {}};
  const std::string digits = secret.to_hex();
  std::copy(digits.begin(), digits.end(), order.secret.begin());
  const double cpu_before = cpu_seconds();
  const auto begun = Clock::now();
  for (int i = 0; i < processes; ++i) {
    order.first = clients * i / processes;
    order.count = clients * (i + 1) / processes - order.first;
    put(children[static_cast<std::size_t>(i)].orders.get(), order);
  }
  Timing timing;
  std::string error;
  for (const Child& child : children) {
    const Result result = take<Result>(child.results.get());
    timing.client_cpu += result.cpu_seconds;
    if (!result.ok) error = result.error.data();
  }
  timing.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  timing.server_cpu = cpu_seconds() - cpu_before;
  for (Child& child : children) child.orders.reset();  // all of them: a later child holds the earlier ones' pipes too
  for (const Child& child : children) ::waitpid(child.pid, nullptr, 0);
  if (!error.empty()) throw Error(ErrorCode::system, fmt::format("{} clients could not join: {}", clients, error));
  return timing;
}

int run(const Flags& flags) {
  ::signal(SIGPIPE, SIG_IGN);
  fmt::print("# clients  run  seconds  us/client  server CPU s  client CPU s  server MiB\n");
  bool within = true;
  for (const int clients : flags.clients) {
    std::vector<double> seconds;
    for (int i = 0; i < flags.runs; ++i) {
      const Timing timing = run_once(clients, flags.processes);
      seconds.push_back(timing.seconds);
      fmt::print("{:9} {:4} {:8.3f} {:10.1f} {:13.3f} {:13.3f} {:11.1f}\n", clients, i + 1, timing.seconds,
                 1e6 * timing.seconds / clients, timing.server_cpu, timing.client_cpu, peak_mib());
      std::fflush(stdout);
    }
    std::nth_element(seconds.begin(), seconds.begin() + flags.runs / 2, seconds.end());
    const double median = seconds[static_cast<std::size_t>(flags.runs / 2)];
    if (flags.max_seconds <= 0 || median <= flags.max_seconds) continue;
    fmt::print(stderr, "rendezvous_load: {} clients took {:.3f} s (median), more than --max-seconds {}\n", clients,
               median, flags.max_seconds);
    within = false;
  }
  if (flags.max_mib > 0 && peak_mib() > flags.max_mib) {
    fmt::print(stderr, "rendezvous_load: the server took {:.1f} MiB, more than --max-mib {}\n", peak_mib(),
               flags.max_mib);
    within = false;
  }
  return within ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  Flags flags;
  CLI::App app("Joins many authenticated clients to a rendezvous server", "rendezvous_load");
  app.add_option("--clients", flags.clients, "how many, one run set each (1000,10000)")
      ->delimiter(',')
      ->check(CLI::Range(1, 200'000));
  app.add_option("--processes", flags.processes, "client processes (2); each needs a descriptor per client")
      ->check(CLI::Range(1, 64));
  app.add_option("--runs", flags.runs, "runs per number of clients (3)")->check(CLI::Range(1, 1000));
  app.add_option("--max-seconds", flags.max_seconds, "fail when the median of the runs takes longer (no limit)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--max-mib", flags.max_mib, "fail when the server's process has had more memory (no limit)")
      ->check(CLI::Range(0.0, 1e6));
  try {
    app.parse(argc, argv);
    return run(flags);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    complain("rendezvous_load", error.what());
    return 2;
  } catch (const std::exception& error) {
    complain("rendezvous_load", error.what());
    return 1;
  }
}
