// SPDX-License-Identifier: Apache-2.0
// Every way not to join, over real sockets: each ends in a named error before its deadline, and the server goes on
// serving a client that does everything right.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <functional>

#include "rendezvous/client_session.hpp"
#include "rendezvous/connect.hpp"
#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/flood.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

const Limits kQuick{
    .unauthenticated_connections = 8, .authenticate_within = milliseconds(300), .evict_after = milliseconds(50)};

// A connection that says whatever it likes.
struct Raw {
  Fd fd;
  explicit Raw(const Job& job) {
    std::string reason;
    fd = try_connect("127.0.0.1", job.server->port(), in(seconds(10)), reason);
    if (!fd) throw Error(ErrorCode::system, reason);
  }
  void say(std::string_view text) const {
    if (::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) throw Error(ErrorCode::system, "cannot send");
  }
  // Until the server closes. timeout error otherwise.
  std::string hear() const {
    const timeval limit{10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::fcntl(fd.get(), F_SETFL, 0);
    std::string all;
    char buffer[4096];
    for (;;) {
      const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return all;
      if (got < 0) throw Error(ErrorCode::timeout, "the server did not close the connection");
      all.append(buffer, static_cast<std::size_t>(got));
    }
  }
};

// What a stranger is told after it has said `text`.
std::string told(const Job& job, std::string_view text) {
  const Raw raw(job);
  raw.say(text);
  return raw.hear();
}

std::string join(const Job& job, const JoinRequest& request, milliseconds within = seconds(10)) {
  return error_of([&] { job.client()->join(request, in(within)); });
}

std::string hello_frame(const std::function<void(proto::ClientHello&)>& change) {
  JobKey key{Secret::generate()};
  proto::ClientHello hello = ClientHandshake().hello("test", key);
  change(hello);
  return plain_frame(hello.SerializeAsString());
}

struct Case {
  const char* name;
  std::string (*act)(const Job&);  // the error, or what the stranger was told
  std::vector<const char*> says;
};

const std::vector<Case> kCases = {
    {"wrong secret",
     [](const Job& job) {
       Endpoint endpoint = job.endpoint();
       endpoint.secret = Secret::generate();
       return error_of([&] { Client::connect(endpoint, in(seconds(10))); });
     },
     {"wrong secret", "127.0.0.1"}},
    {"no secret",
     [](const Job& job) {
       Endpoint endpoint = job.endpoint();
       endpoint.secret.reset();
       return error_of([&] { Client::connect(endpoint, in(seconds(10))); });
     },
     {"wrong secret", "has none"}},
    {"wrong job",
     [](const Job& job) {
       Endpoint endpoint = job.endpoint();
       endpoint.job = "other";
       return error_of([&] { Client::connect(endpoint, in(seconds(10))); });
     },
     {"wrong job", "'other'", "'test'"}},
    {"wrong version",
     [](const Job& job) {
       return told(job, hello_frame([](proto::ClientHello& hello) {
                     hello.set_min_version(7);
                     hello.set_max_version(9);
                   }));
     },
     {"wrong version", "7 to 9", "1 to 1"}},
    {"wrong proof",
     [](const Job& job) {
       const Raw raw(job);
       raw.say(hello_frame([](proto::ClientHello&) {}));
       raw.say(plain_frame("\x0a\x03xyz"));
       return raw.hear();
     },
     {"proof does not fit"}},
    {"wrong world size",
     [](const Job& job) { return join(job, {.rank = 0, .world_size = 3}); },
     {"wrong world size", "says 3", "has 2"}},
    {"rank outside the world",
     [](const Job& job) { return join(job, {.rank = 2, .world_size = 2}); },
     {"rank 2", "0 to 1"}},
    {"duplicate rank",
     [](const Job& job) {
       // All are told at once, in the same words.
       const auto claim = [&job](int rank, const char* host, int pid) {
         return join(job, {.rank = rank, .host = host, .pid = pid}, seconds(60));
       };
       auto first = std::async(std::launch::async, claim, 1, "here", 77);
       const std::string error = claim(1, "there", 88);
       CHECK(first.get() == error);
       return error;
     },
     {"duplicate rank", "two processes claim rank 1", "pid 88", "pid 77", "start every rank once", "RONDO_JOB"}},
    {"missing rank",
     [](const Job& job) { return join(job, {.rank = 1, .world_size = 2}, milliseconds(100)); },
     {"missing ranks", "1 of 2", ": 0;"}},
    {"HTTP", [](const Job& job) { return told(job, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); }, {"is not a rondo"}},
    {"a length of 8 GiB",
     [](const Job& job) { return told(job, std::string("\xff\xff\xff\xff\x01\x00\x00\x00", 8)); },
     {"4294967295", "256"}},
    {"an empty frame", [](const Job& job) { return told(job, std::string(4, '\0')); }, {"not a rondo client's hello"}},
    {"garbage",
     [](const Job& job) { return told(job, "\x10" + std::string(3, '\0') + std::string(16, '\x93')); },
     {"not a rondo client's hello"}},
    {"silence", [](const Job& job) { return Raw(job).hear(); }, {"did not authenticate within 300 ms"}},
    {"half a hello",
     [](const Job& job) { return told(job, hello_frame([](proto::ClientHello&) {}).substr(0, 12)); },
     {"did not authenticate within 300 ms"}},
    {"a replayed frame",
     [](const Job& job) {
       const Raw raw(job);
       ClientSession session(job.secret, "test");
       raw.say(session.hello());
       std::string to_send;
       std::vector<ClientSession::Answer> answers;
       std::vector<std::byte> buffer(1024);
       const timeval limit{10, 0};
       ::setsockopt(raw.fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
       ::fcntl(raw.fd.get(), F_SETFL, 0);
       const ssize_t got = ::recv(raw.fd.get(), buffer.data(), buffer.size(), 0);
       session.received({buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))}, to_send, answers);
       proto::Request request;
       request.mutable_heartbeat();
       const std::string frame = session.request(0, request);
       raw.say(to_send + frame + frame);
       return raw.hear();
     },
     {"changed, repeated"}},
    {"more strangers than allowed",
     [](const Job& job) {
       std::vector<Raw> strangers;
       for (int i = 0; i < 12; ++i) strangers.emplace_back(job);
       return strangers.front().hear();
     },
     {"8 unauthenticated connections"}},
};

void check_serves(const Job& job) {
  in_threads(2, [&](int rank) {
    auto client = job.client();
    client->join({.rank = rank, .world_size = 2}, in(seconds(10)));
    client->barrier("both", rank, 2, in(seconds(10)));
  });
}

}  // namespace

TEST_CASE("who cannot join is told why, and the server serves on") {
  for (const Case& each : kCases) {
    DYNAMIC_SECTION(each.name) {
      Job job(2, kQuick);
      const auto begun = std::chrono::steady_clock::now();
      const std::string said = each.act(job);
      CAPTURE(said);
      for (const char* part : each.says) CHECK(contains(said, part));
      CHECK(std::chrono::steady_clock::now() - begun < seconds(8));
      check_serves(job);
    }
  }
}

TEST_CASE("at a deadline every rank that is there gets the list") {
  Job job(5);
  std::vector<std::future<std::string>> present;
  for (const int rank : {0, 3}) {
    present.push_back(std::async(std::launch::async, [&job, rank] {
      return join(job, {.rank = rank, .world_size = 5}, rank == 0 ? milliseconds(20'000) : milliseconds(300));
    }));
  }
  int listed = 0;
  for (auto& each : present) {
    const std::string error = each.get();
    CAPTURE(error);
    CHECK(contains(error, "missing ranks: "));
    listed += contains(error, "3 of 5") && contains(error, "1-2, 4");
  }
  CHECK(listed >= 1);
}

TEST_CASE("a server that never answers, or nobody at the port, is named at the deadline") {
  const Fd deaf(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(deaf.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  ::getsockname(deaf.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const Endpoint endpoint{.host = "127.0.0.1", .port = ntohs(address.sin_port), .secret = Secret::generate()};
  const std::string nobody = error_of([&] { Client::connect(endpoint, in(milliseconds(100))); });
  CHECK(contains(nobody, "refused"));
  CHECK(contains(nobody, std::to_string(endpoint.port)));
  REQUIRE(::listen(deaf.get(), 8) == 0);
  CHECK(contains(error_of([&] { Client::connect(endpoint, in(milliseconds(100))); }), "says nothing"));
}

TEST_CASE("a server raises its soft limit of descriptors before it refuses anybody") {
  Job job(-1, kQuick);
  auto client = job.client();
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  Fd probe(::open("/dev/null", O_RDONLY));
  const rlimit tight{static_cast<rlim_t>(probe.get()) + 1, before.rlim_max};
  probe.reset();
  std::string reason;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  const Fd end = try_connect("127.0.0.1", job.server->port(), in(seconds(5)), reason);
  const Fd other =
      try_connect("127.0.0.1", job.server->port(), in(seconds(5)), reason);  // of the server's raised limit
  for (int i = 0; i < 50; ++i) client->add("alive", 1);
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(now.rlim_cur == before.rlim_max);
  check_serves(job);
}

namespace {

// In a process of its own, as nobody but root may raise a hard limit again. What a server without descriptors says to a
// newcomer, or what was wrong.
std::string refusal_without_descriptors() {
  const Job job(-1, kQuick);
  auto client = job.client();
  Fd probe(::open("/dev/null", O_RDONLY));
  // Leaves room for this side's end of a connection and none for the server's.
  const auto most = static_cast<rlim_t>(probe.get()) + 1;
  const rlimit tight{most, most};
  probe.reset();
  if (::setrlimit(RLIMIT_NOFILE, &tight) != 0) return "no limit";
  std::string reason;
  const Fd end = try_connect("127.0.0.1", job.server->port(), in(seconds(5)), reason);
  for (int i = 0; i < 50; ++i) client->add("alive", 1);
  std::string said(512, '\0');
  const timeval limit{10, 0};
  ::setsockopt(end.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::fcntl(end.get(), F_SETFL, 0);
  const ssize_t got = ::recv(end.get(), said.data(), said.size(), 0);
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return client->add("alive", 0) == 50 ? said : "the client was lost";
}

}  // namespace

TEST_CASE("without descriptors the server refuses newcomers and keeps its clients") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = refusal_without_descriptors();
    ::_exit(::write(ends[1], said.data(), said.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  const Fd reader(ends[0]);
  std::string said(512, '\0');
  const ssize_t got = ::read(reader.get(), said.data(), said.size());
  int status = 0;
  ::waitpid(child, &status, 0);
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  CHECK(status == 0);
  CHECK(contains(said, "cannot take more connections"));
  CHECK(contains(said, "raise the limit (ulimit -n)"));
}

TEST_CASE("a lost participant ends an exchange at once, by name") {
  Job job(2);
  auto a = job.client();
  auto b = job.client();
  in_threads(2, [&](int rank) { (rank == 0 ? a : b)->join({.rank = rank, .host = "h", .pid = 5}, in(seconds(10))); });
  auto waiting =
      std::async(std::launch::async, [&] { return error_of([&] { a->exchange("x", 0, 2, {}, in(seconds(60))); }); });
  b.reset();
  const std::string error = waiting.get();
  CHECK(contains(error, "rank 1 (host h, pid 5) left"));
  CHECK(contains(error, "'x'"));
}

TEST_CASE("an exchange that is incomplete at the deadline lists who is missing") {
  Job job;
  auto a = job.client();
  const std::string error = error_of([&] { a->exchange("x", 2, 4, {}, in(milliseconds(100))); });
  CHECK(contains(error, "3 of 4"));
  CHECK(contains(error, "0-1, 3"));
  CHECK(contains(error_of([&] { a->get("never", in(milliseconds(50))); }), "'never'"));
}

TEST_CASE("survivors are those who live, as soon as they have asked") {
  Job job(4);
  std::vector<std::shared_ptr<Client>> clients(4);
  for (auto& client : clients) client = job.client();
  in_threads(4, [&](int rank) {
    clients[static_cast<std::size_t>(rank)]->join({.rank = rank, .world_size = 4}, in(seconds(10)));
  });
  const std::vector<int> members = {0, 1, 2, 3};
  clients[2].reset();
  in_threads(4, [&](int rank) {
    if (rank == 2) return;
    const auto left = clients[static_cast<std::size_t>(rank)]->survivors("world", rank, members, in(seconds(20)));
    if (left != std::vector<int>{0, 1, 3}) throw Error(ErrorCode::mismatch, "not the survivors");
  });
}

TEST_CASE("an exchange of survivors ends for all when one of them goes, whether they have come to it or not") {
  Job job(4);
  std::vector<std::shared_ptr<Client>> clients(4);
  for (auto& client : clients) client = job.client();
  in_threads(4, [&](int rank) {
    clients[static_cast<std::size_t>(rank)]->join({.rank = rank, .world_size = 4}, in(seconds(10)));
  });
  clients[3].reset();
  const std::vector<int> members = {0, 1, 2, 3};
  in_threads(3, [&](int rank) {
    clients[static_cast<std::size_t>(rank)]->survivors("world@1", rank, members, in(seconds(20)));
  });
  auto waiting = std::async(std::launch::async, [&] {
    return error_of([&] { clients[0]->exchange("world@1/cards", 0, 3, {}, in(seconds(60))); });
  });
  auto other = std::async(std::launch::async, [&] {
    return error_of([&] { clients[0]->exchange("another", 0, 2, {}, in(milliseconds(500))); });
  });
  clients[2].reset();
  CHECK(contains(waiting.get(), "rank 2"));
  const auto late = error_of([&] { clients[1]->exchange("world@1/cards", 1, 3, {}, in(seconds(60))); });
  CHECK(contains(late, "rank 2"));
  CHECK(contains(other.get(), "deadline"));
}

TEST_CASE("a deadline at the end of time waits") {
  Job job;
  const auto client = job.client(), other = job.client();
  auto waiting = std::async(std::launch::async, [&] { return text(client->get("k", Store::Deadline::max())); });
  CHECK(waiting.wait_for(milliseconds(200)) == std::future_status::timeout);
  other->set("k", bytes("v"));
  CHECK(waiting.get() == "v");
}

TEST_CASE("everything says so when the server is gone") {
  Job job;
  auto client = job.client();
  auto waiting = std::async(std::launch::async, [&] { return error_of([&] { client->get("k", in(seconds(60))); }); });
  client->set("there", {});
  job.server.reset();
  CHECK(contains(waiting.get(), "is gone"));
  CHECK_FALSE(error_of([&] { client->set("k", {}); }).empty());
}

TEST_CASE(
    "two that claimed one rank have gone when the rank 0 that serves them comes: it is told, and waits for nobody") {
  const Job job(3, kQuick, true);
  const auto claim = [&](int rank) { return join(job, {.rank = rank, .world_size = 3}, seconds(60)); };
  auto first = std::async(std::launch::async, claim, 1);
  const std::string error = claim(1);
  CHECK(first.get() == error);
  const auto begun = std::chrono::steady_clock::now();
  CHECK(claim(0) == error);
  CHECK(claim(2) == error);
  CHECK(std::chrono::steady_clock::now() - begun < seconds(8));
}

TEST_CASE("where nobody is expected, a millisecond lies between two that come") {
  const Job job(2, kQuick);
  std::vector<std::shared_ptr<Client>> members{job.client(), job.client()};
  in_threads(2, [&](int rank) {
    members[static_cast<std::size_t>(rank)]->join({.rank = rank, .world_size = 2}, in(seconds(10)));
  });
  // As launchers do, and in vain.
  std::jthread waits([&] { error_of([&] { members[0]->get("never", in(seconds(30))); }); });
  const rondo::test::Flood flood({job.server->port()}, 200, rondo::test::Flood::Says::garbage);
  const auto until = in(seconds(10));
  while (flood.met() == 0 && in(seconds(0)) < until) std::this_thread::yield();
  const std::uint64_t before = flood.met();
  const auto begun = in(seconds(0));
  constexpr milliseconds kWindow{300};
  while (in(seconds(0)) < begun + kWindow) std::this_thread::yield();
  const std::uint64_t sent_away = flood.met() - before;
  const auto took = std::chrono::duration_cast<milliseconds>(in(seconds(0)) - begun);
  const std::uint64_t held = 2 * kQuick.unauthenticated_connections;  // by then, and closed only now
  members[1]->set("never", bytes("now"));
  CHECK(sent_away > 0);
  CHECK(sent_away <= static_cast<std::uint64_t>(took.count()) + 1 + held);
}
