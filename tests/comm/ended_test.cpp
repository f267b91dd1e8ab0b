// SPDX-License-Identifier: Apache-2.0
// A rank's process ends or stops in the middle of the others' calls: every one of their errors says how.
#include <csignal>

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "comm/base/process_state.hpp"
#include "comm/transport/transport.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/passing_store.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 4, kVictim = 1;
constexpr auto kLimit = 60s;

struct Layout {
  const char* transport;
  int ranks_per_node;
};

Options options_of(const Layout& layout, int rank) {
  Options options;
  options.node = fmt::format("node{}", rank / layout.ranks_per_node);
  return options;
}

std::string name_of(const std::shared_ptr<Store>& store, const char* key) {
  const Store::Bytes bytes = store->get(key, std::chrono::steady_clock::now() + kLimit);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void tell(const std::shared_ptr<Store>& store, const char* key, const std::string& text) {
  store->set(key, std::as_bytes(std::span(text)));
}

// All but the victim call barriers until one fails, and check what it says.
void check_ends(const Layout& layout, const std::string& how, void (*end)()) {
  const Setting over("RONDO_TRANSPORT", layout.transport);
  const auto ended = fork_ranks(kRanks, kLimit, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, kRanks, store, options_of(layout, rank));
    if (rank == kVictim) {
      comm.barrier();
      end();
    }
    const auto error = thrown_by([&] {
      for (;;) comm.barrier();
    });
    expect(code_of(error) == ErrorCode::peer_lost && culprit_of(error) == kVictim, sentence_of(error));
    expect(contains(sentence_of(error), how), "it does not say how: " + sentence_of(error));
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    CAPTURE(layout.transport, layout.ranks_per_node, rank);
    if (rank != kVictim) CHECK(ended[static_cast<std::size_t>(rank)].failure == "");
  }
}

// Whoever asks it who has survived is told, once all but so many are missed.
class AskingStore : public PassingStore {
 public:
  explicit AskingStore(std::shared_ptr<Store> store, std::size_t left = 1)
      : PassingStore(std::move(store)), left_(left) {}
  std::vector<int> survivors(std::string_view, int, std::span<const int> members, Deadline) override {
    std::unique_lock lock(mutex_);
    const bool all = said_.wait_for(lock, kLimit / 2, [&] { return missed_.size() + left_ == members.size(); });
    expect(all, fmt::format("{} of {} ranks are missed", missed_.size(), members.size()));
    std::vector<int> indices;
    for (int i = 0; i < static_cast<int>(members.size()); ++i)
      if (!missed_.contains(i)) indices.push_back(i);
    return indices;
  }
  void missing(std::string_view, std::span<const int> indices) override {
    const std::lock_guard lock(mutex_);
    missed_.insert(indices.begin(), indices.end());
    said_.notify_all();
  }

 private:
  const std::size_t left_;
  std::mutex mutex_;
  std::condition_variable said_;
  std::set<int> missed_;
};

// The server is gone before this rank hears that all have come.
class LosingStore final : public AskingStore {
 public:
  using AskingStore::AskingStore;
  std::vector<Bytes> exchange(std::string_view name, int index, int participants, std::span<const std::byte> value,
                              Deadline deadline) override {
    auto values = AskingStore::exchange(name, index, participants, value, deadline);
    if (name.ends_with("/made")) throw Error(ErrorCode::peer_lost, "the server is gone");
    return values;
  }
};

// Where rank 2 waits to join the others.
class OneWaits final : public Recruiter {
 public:
  explicit OneWaits(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  static Growth growth() { return {.name = "grown", .generation = 1, .job_ranks = {0, 1, 2}}; }
  Growth admit(std::span<const int>, int, std::uint32_t, Store::Deadline) override { return growth(); }
  Survived survivors(std::string_view name, int index, std::span<const int> members, const Doubt&,
                     Store::Deadline deadline) override {
    return {.ranks = store_->survivors(name, index, members, deadline)};  // nobody has given it up
  }
  void check(const Growth&) override {}
  void check_first_ranks() override {}
  void missing(const Growth&, std::span<const int>) override {}
  void give_up(const Growth&, const Error&) noexcept override {}

 private:
  std::shared_ptr<Store> store_;
};

Bootstrap bootstrap_of(int rank, int world_size, std::shared_ptr<Store> store) {
  Bootstrap bootstrap;
  bootstrap.rank = rank;
  bootstrap.world_size = world_size;
  bootstrap.store = std::move(store);
  bootstrap.recruiter = std::make_shared<OneWaits>(bootstrap.store);
  return bootstrap;
}

void idle(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait(lock, stop, [] { return false; });
}

}  // namespace

// Of a rank that is alone on its node nobody else can know.
TEST_CASE("how a rank's process ended is in every other rank's error") {
  const Layout layout =
      GENERATE(Layout{"", kRanks}, Layout{"tcp", kRanks}, Layout{"", 2}, Layout{"tcp", 2}, Layout{"", 3});
  check_ends(layout, "its process was killed by signal 9 (Killed)", [] { ::raise(SIGKILL); });
  check_ends(layout, "its process exited with code 3", [] { ::_exit(3); });
  check_ends(layout, "its process exited with code 0", [] { ::_exit(0); });
}

// Whether its process ends at once or takes leave, and whether the others are
// in the aborted communicator or another.
TEST_CASE("a rank that aborts and then ends is not lost to any communicator") {
  const Layout layout = GENERATE(Layout{"", kRanks}, Layout{"", 2}, Layout{"", 1});
  const bool of_child = GENERATE(false, true), in_child = GENERATE(false, true), leaves = GENERATE(false, true);
  const Setting over("RONDO_TRANSPORT", layout.transport);
  const auto ended = fork_ranks(kRanks, kLimit, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, kRanks, store, options_of(layout, rank));
    Communicator child = comm.split(0, rank);
    Communicator& called = in_child ? child : comm;
    if (rank == kVictim) {
      called.barrier();
      (of_child ? child : comm).abort();
      if (leaves) return;
      ::_exit(3);
    }
    const auto error = thrown_by([&] {
      for (;;) called.barrier();
    });
    expect(code_of(error) == ErrorCode::aborted && culprit_of(error) == kVictim, sentence_of(error));
    expect(contains(sentence_of(error), "called abort()") && !contains(sentence_of(error), "lost"), sentence_of(error));
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    CAPTURE(layout.transport, layout.ranks_per_node, of_child, in_child, leaves, rank);
    if (rank != kVictim) CHECK(ended[static_cast<std::size_t>(rank)].failure == "");
  }
}

TEST_CASE("a rank that goes on after an abort is lost when it is killed") {
  const Layout layout = GENERATE(Layout{"", kRanks}, Layout{"", 1});
  const auto ended = fork_ranks(kRanks, kLimit, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, kRanks, store, options_of(layout, rank));
    {
      Communicator child = comm.split(0, rank);
      child.barrier();
      comm.barrier();  // all have left that one
      if (rank == kVictim) child.abort();
    }
    comm.barrier();
    if (rank == kVictim) {
      comm.barrier();
      ::raise(SIGKILL);
    }
    const auto error = thrown_by([&] {
      for (;;) comm.barrier();
    });
    expect(code_of(error) == ErrorCode::peer_lost && culprit_of(error) == kVictim, sentence_of(error));
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    CAPTURE(layout.ranks_per_node, rank);
    if (rank != kVictim) CHECK(ended[static_cast<std::size_t>(rank)].failure == "");
  }
}

TEST_CASE("so it is where it ends while the ranks meet") {
  const auto ended = fork_ranks(kRanks, kLimit, [&](int rank, const auto& store) {
    comm::Transports rows = comm::transports();
    if (rank == kVictim) {
      rows[0].can_connect = [](const comm::Party&, const comm::Party&) { return ::raise(SIGKILL) == 0; };
    }
    Bootstrap bootstrap;
    bootstrap.rank = rank;
    bootstrap.world_size = kRanks;
    bootstrap.store = store;
    bootstrap.transports = &rows;
    const auto error = thrown_by([&] { make_communicator(std::move(bootstrap), {}); });
    expect(code_of(error) == ErrorCode::peer_lost && culprit_of(error) == kVictim, sentence_of(error));
    expect(contains(sentence_of(error), "was killed by signal 9 (Killed) while the ranks met"), sentence_of(error));
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != kVictim) CHECK(ended[static_cast<std::size_t>(rank)].failure == "");
  }
}

TEST_CASE("how a process ended is known before its parent has asked, and after") {
  const auto expected = GENERATE(std::pair{0, "exited with code 0"}, std::pair{7, "exited with code 7"});
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(expected.first);
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ends{process.get(), POLLIN, 0};
  REQUIRE(::poll(&ends, 1, 60'000) == 1);
  CHECK(how_it_ended(pid, process.get()) == expected.second);
  REQUIRE(::waitpid(pid, nullptr, 0) == pid);
  const std::string later = how_it_ended(pid, process.get());
  CHECK((later == expected.second || later == "ended"));  // Linux before 6.15 has forgotten it
}

// On one node and over connections: what each of them was in is known to both.
TEST_CASE("the deadline of a barrier says that another rank is in recv, and the other way round") {
  const Layout layout = GENERATE(Layout{"", 2}, Layout{"", 1});
  const bool receiver_first = GENERATE(false, true);
  const auto ended = fork_ranks(2, kLimit, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, 2, store, options_of(layout, rank));
    const std::jthread another(idle);  // that could make the call which is missing, so there is no mismatch before
    comm.barrier();
    comm.set_timeout(rank == (receiver_first ? 1 : 0) ? 400ms : 10s);
    std::vector<int> data(1);
    const auto error = thrown_by([&] { rank == 0 ? comm.barrier() : comm.recv(data, 0); });
    expect(code_of(error) == ErrorCode::timeout, sentence_of(error));
    for (const char* word : {"barrier #", "recv ", "from rank 0"})
      expect(contains(sentence_of(error), word), sentence_of(error));
  });
  check_ended_well(ended);
}

TEST_CASE("a rank whose process is stopped is called stopped, by every other rank") {
  const Layout layout = GENERATE(Layout{"", kRanks}, Layout{"tcp", kRanks}, Layout{"", 2}, Layout{"", 3});
  const Setting over("RONDO_TRANSPORT", layout.transport);
  const auto ended = fork_ranks(kRanks, kLimit, [&](int rank, const auto& store) {
    Communicator comm = join_forked(rank, kRanks, store, options_of(layout, rank));
    comm.barrier();
    comm.set_timeout(400ms);
    if (rank == kVictim) {
      tell(store, "victim", std::to_string(::getpid()));
      ::raise(SIGSTOP);
    }
    const auto error = thrown_by([&] { comm.barrier(); });
    tell(store, fmt::format("told{}", rank).c_str(), "");
    if (rank == 0) {
      for (int other = 0; other < kRanks; ++other) {
        if (other != kVictim) name_of(store, fmt::format("told{}", other).c_str());
      }
      ::kill(std::stoi(name_of(store, "victim")), SIGCONT);
    }
    expect(code_of(error) == ErrorCode::timeout && culprit_of(error) == kVictim, sentence_of(error));
    expect(contains(sentence_of(error), "is stopped"), "it does not say that: " + sentence_of(error));
  });
  check_ended_well(ended);
}

// As it may when it has met the others of the next communicator already, which this rank has still to make.
TEST_CASE("survivors miss a rank that dies after it has said goodbye to them, too") {
  const char* transport = GENERATE("shm", "tcp");
  const Setting over("RONDO_TRANSPORT", transport);
  const auto ended = fork_ranks(3, kLimit, [&](int rank, const auto& inherited) {
    const auto store = std::make_shared<AskingStore>(inherited);
    Communicator comm = join_forked(rank, 3, store);
    if (rank == 1) {
      comm = Communicator();
      tell(inherited, "left", "");
      name_of(inherited, "failed");
      ::raise(SIGKILL);
    }
    if (rank == 2) {
      name_of(inherited, "left");
      ::raise(SIGKILL);
    }
    const auto error = thrown_by([&] {
      for (;;) comm.barrier();
    });
    expect(code_of(error) == ErrorCode::peer_lost, sentence_of(error));
    tell(inherited, "failed", "");
    expect(comm.shrink().world_size() == 1, "others have survived");
  });
  CAPTURE(transport);
  CHECK(ended[0].failure == "");
}

// It lives and waits elsewhere, as it may where rank 0 served and died: the members have the larger communicator then.
TEST_CASE("survivors miss a process that gave up as it joined them, though it lives") {
  const Layout layout = GENERATE(Layout{"", 3}, Layout{"tcp", 3}, Layout{"", 2}, Layout{"", 1});
  const Setting over("RONDO_TRANSPORT", layout.transport);
  const auto ended = fork_ranks(3, kLimit, [&](int rank, const auto& inherited) {
    if (rank == 2) {
      Bootstrap bootstrap = bootstrap_of(rank, 3, std::make_shared<LosingStore>(inherited));
      bootstrap.growth = OneWaits::growth();
      const auto error = thrown_by([&] { join_growth(std::move(bootstrap), options_of(layout, rank)); });
      expect(code_of(error) == ErrorCode::peer_lost, sentence_of(error));
      for (const char* key : {"shrunk0", "shrunk1"}) name_of(inherited, key);
      return;
    }
    const auto store = std::make_shared<AskingStore>(inherited, 2);
    Communicator comm = make_communicator(bootstrap_of(rank, 2, store), options_of(layout, rank));
    Communicator larger = comm.grow();
    expect(larger.world_size() == 3, "it has not grown");
    const auto error = thrown_by([&] {
      for (;;) larger.barrier();
    });
    expect(culprit_of(error) == 2, sentence_of(error));
    expect(larger.shrink().world_size() == 2, "others have survived");
    tell(inherited, fmt::format("shrunk{}", rank).c_str(), "");
  });
  CAPTURE(layout.transport, layout.ranks_per_node);
  check_ended_well(ended);
}
