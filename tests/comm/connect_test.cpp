// SPDX-License-Identifier: Apache-2.0
// Communicators that meet through a store as processes do, here from threads of one: memfds, Unix and TCP sockets,
// monitors, all real.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/base/json_text.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/setup/bootstrap.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/mortal_store.hpp"
#include "tests/support/passing_store.hpp"
#include "tests/support/queue_transport.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using test::code_of;
using test::sentence_of;
using test::Setting;
using test::thrown_by;

namespace {

const comm::Transports& known() { return test::queue_behind_all(); }

// `before`: in each rank's thread, before it meets the others.
template <class Body>
std::vector<std::exception_ptr> meet(
    int world_size, const Options& options, Body body, const std::function<void(int)>& before = [](int) {},
    const comm::Transports& transports = known(), std::shared_ptr<Store> store = std::make_shared<LocalStore>()) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      try {
        before(r);
        Options own = options;
        if (options.node == "each") own.node = fmt::format("node{}", r);
        if (options.node == "pairs") own.node = fmt::format("node{}", r / 2);
        Bootstrap bootstrap;
        bootstrap.rank = r;
        bootstrap.world_size = world_size;
        bootstrap.store = store;
        bootstrap.transports = &transports;
        Communicator comm = make_communicator(std::move(bootstrap), own);
        body(comm);
      } catch (...) {
        errors[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void all_reduce_once(Communicator& comm, std::size_t count) {
  std::vector<std::int64_t> data(count);
  std::iota(data.begin(), data.end(), comm.rank());
  comm.all_reduce(data, ReduceOp::sum);
  const int n = comm.world_size();
  for (std::size_t i = 0; i < count; ++i) {
    expect(data[i] == static_cast<std::int64_t>(i) * n + n * (n - 1) / 2, fmt::format("element {} is {}", i, data[i]));
  }
}

std::chrono::nanoseconds time_of_thread() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

TEST_CASE("who gives up for a reason of its own as the ranks meet is named by the others, which do not wait for it") {
  constexpr int kRanks = 4, kCulprit = 2;
  const auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  const auto begin = std::chrono::steady_clock::now();
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      Bootstrap bootstrap;
      bootstrap.rank = r;
      bootstrap.world_size = kRanks;
      bootstrap.store = store;
      if (r == kCulprit)
        bootstrap.store = std::make_shared<test::LastMeeting>(store, [] { throw std::runtime_error("out of luck"); });
      errors[static_cast<std::size_t>(r)] =
          thrown_by([&] { make_communicator(bootstrap, {.join_timeout = 60s, .node = fmt::format("node{}", r)}); });
    });
  for (auto& thread : threads) thread.join();
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
  for (int r = 0; r < kRanks; ++r) {
    if (r == kCulprit) continue;
    const auto& error = errors[static_cast<std::size_t>(r)];
    CAPTURE(r, sentence_of(error));
    CHECK(code_of(error) == ErrorCode::peer_lost);
    CHECK(test::culprit_of(error) == kCulprit);
    CHECK(sentence_of(error).find("gave up as the ranks met: out of luck") != std::string::npos);
  }
}

TEST_CASE("ranks meet and reduce over every transport") {
  const std::string transport = GENERATE("", "shm", "tcp", "queue");
  const std::string nodes = GENERATE("", "each", "pairs");
  const int world = GENERATE(1, 2, 5);
  if (transport == "shm" && !nodes.empty()) return;
  const Setting setting("RONDO_TRANSPORT", transport);
  Options options;
  options.node = nodes;
  const auto errors = meet(world, options, [&](Communicator& comm) {
    for (const std::size_t count : {0U, 1U, 1000U, 2'000'003U}) all_reduce_once(comm, count);
    if (nodes == "pairs") expect(comm.node() == comm.rank() / 2 && comm.local_rank() == comm.rank() % 2, "placement");
    auto half = comm.split(comm.rank() % 2, comm.rank());
    all_reduce_once(half, 70'000);
    comm.barrier();
  });
  for (const auto& error : errors) {
    CAPTURE(transport, nodes, world, sentence_of(error));
    CHECK_FALSE(error);
  }
}

TEST_CASE("ranks that no transport connects refuse together, also those that all others could reach") {
  Options options;
  options.node = "each";
  comm::Transports rows{test::queue_row()};
  rows[0].can_connect = [](const comm::Party& one, const comm::Party& other) { return one.rank + other.rank != 5; };
  const auto errors = meet(
      4, options, [](Communicator&) {}, [](int) {}, rows);
  for (const auto& error : errors) {
    CHECK(code_of(error) == ErrorCode::unsupported);
    CHECK(sentence_of(error).find("no transport connects rank 2 (") == 0);
  }
}

TEST_CASE("some pairs may take one transport and others another") {
  Options options;
  options.node = GENERATE("each", "pairs");
  comm::Transports rows = test::queue_before_all();
  rows[0].can_connect = [](const comm::Party& one, const comm::Party& other) { return one.rank + other.rank != 3; };
  const auto errors = meet(
      4, options,
      [](Communicator& comm) {
        for (const std::size_t count : {1U, 300'001U}) all_reduce_once(comm, count);
        comm.barrier();
      },
      [](int) {}, rows);
  for (const auto& error : errors) CHECK(sentence_of(error) == "");
}

namespace {

thread_local bool comes_late = false;
thread_local int own_rank = 0;
std::atomic<unsigned> came{0};  // a bit per rank

}  // namespace

// The job's store, which may be gone, has no part in it.
TEST_CASE("ranks that split wait for one that comes late") {
  const bool ends = GENERATE(false, true);
  const auto store = std::make_shared<test::MortalStore>(std::make_shared<LocalStore>());
  Options options;
  options.node = "each";
  comm::Transports rows{comm::transports()[1]};
  rows[0].can_connect = [](const comm::Party&, const comm::Party&) {
    came |= 1U << static_cast<unsigned>(own_rank);
    if (!std::exchange(comes_late, false)) return true;
    const auto until = std::chrono::steady_clock::now() + 30s;
    while (came != 7) {
      if (std::chrono::steady_clock::now() > until) throw std::runtime_error("the others did not come");
      std::this_thread::yield();
    }
    return true;
  };
  const auto errors = meet(
      3, options,
      [&](Communicator& comm) {
        comm.barrier();
        own_rank = comm.rank();
        came = 0;
        comm.barrier();
        if (ends) store->end();
        comes_late = comm.rank() == 2;
        auto all = comm.split(0, comm.rank());
        all_reduce_once(all, 1000);
      },
      [](int) {}, rows, store);
  for (const auto& error : errors) CHECK(sentence_of(error) == "");
}

TEST_CASE("shm alone refuses ranks of several nodes") {
  const Setting setting("RONDO_TRANSPORT", "shm");
  Options options;
  options.node = "each";
  for (const auto& error : meet(2, options, [](Communicator&) {})) CHECK(code_of(error) == ErrorCode::unsupported);
}

TEST_CASE("a transport that is none is refused with the names of those that there are") {
  const Setting setting("RONDO_TRANSPORT", "pigeon");
  const auto errors = meet(1, {}, [](Communicator&) {});
  CHECK(code_of(errors[0]) == ErrorCode::invalid_argument);
  CHECK(sentence_of(errors[0]) == "RONDO_TRANSPORT=pigeon is not a transport: shm, tcp, queue, or unset");
}

TEST_CASE("settings that are none are refused by name") {
  const auto [name, value] = GENERATE(table<const char*, std::string>({{"RONDO_TRANSPORT", "pigeon"},
                                                                       {"RONDO_ALGORITHM", "magic"},
                                                                       {"RONDO_RSEQ", "maybe"},
                                                                       {"RONDO_LOG", "foo"},
                                                                       {"RONDO_LOG", "Debug"},
                                                                       {"RONDO_FLIGHT_RECORDER", "/nonexistent/folder"},
                                                                       {"RONDO_FLIGHT_RECORDER", "/dev/null"},
                                                                       {"RONDO_FIFO_SLOTS", "1"},
                                                                       {"RONDO_LINK_PATIENCE_MS", "0"},
                                                                       {"RONDO_LINK_PATIENCE_MS", "-1"},
                                                                       {"RONDO_LINK_PATIENCE_MS", "1499"},
                                                                       {"RONDO_LINK_PATIENCE_MS", "600001"},
                                                                       {"RONDO_LINK_PATIENCE_MS", "soon"},
                                                                       {"RONDO_SLICE_BYTES", "many"}}));
  const Setting setting(name, value);
  for (const auto& error : meet(1, {}, [](Communicator&) {})) {
    CHECK(code_of(error) == ErrorCode::invalid_argument);
    CHECK(sentence_of(error).find(std::string(name) + "=" + value) != std::string::npos);
  }
}

TEST_CASE("who has heard of an abort has told the other nodes, though the rank that called it could not") {
  Options options;
  options.node = "pairs";
  options.timeout = 10s;
  std::atomic<int> through{0};
  const auto errors = meet(4, options, [&](Communicator& comm) {
    std::exception_ptr error;
    if (comm.rank() == 0) {  // killed in the middle of abort(): its own node knows
      const comm::Failure& failure = detail::impl_of(comm).team().failure();
      failure.raise(ErrorCode::aborted, 0, "rank 0 called abort()");
    } else {
      error = thrown_by([&] { comm.barrier(); });
    }
    ++through;  // nobody leaves before all have heard, as that would tell them as well
    const auto until = std::chrono::steady_clock::now() + 30s;
    while (through < 4 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    if (error) std::rethrow_exception(error);
  });
  for (const int rank : {1, 2, 3}) {
    CAPTURE(rank, sentence_of(errors[static_cast<std::size_t>(rank)]));
    CHECK(code_of(errors[static_cast<std::size_t>(rank)]) == ErrorCode::aborted);
  }
}

TEST_CASE("a failure leaves every rank's flight record, in a folder that is made for this user alone") {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("rondo-flight-{}", ::getpid());
  const Setting setting("RONDO_FLIGHT_RECORDER", folder);
  meet(2, {}, [](Communicator& comm) {
    all_reduce_once(comm, 10);
    all_reduce_once(comm, 100'000);
    std::vector<float> data(comm.rank() == 0 ? 3 : 4);
    comm.broadcast(data, 1);
    comm.barrier();
  });
  CHECK((std::filesystem::status(folder).permissions() & std::filesystem::perms::mask) ==
        std::filesystem::perms::owner_all);
  for (const int rank : {0, 1}) {
    std::ifstream file(folder / fmt::format("rank{}.json", rank));
    const auto document = nlohmann::json::parse(file);
    REQUIRE(document["communicators"].size() == 1);
    const auto& record = document["communicators"][0];
    CHECK(record["rank"] == rank);
    CHECK(record["failure"].get<std::string>().find("disagree on the count of broadcast #3") != std::string::npos);
    REQUIRE(record["calls"].size() >= 3);
    CHECK(record["calls"][0]["collective"] == "all_reduce");
    CHECK(record["calls"][0]["count"] == 10);
    CHECK(record["calls"][0]["ended_us"] >= record["calls"][0]["begun_us"]);  // qemu's counter goes up every 16 ns
    CHECK(record["calls"][1]["ended_us"] > record["calls"][1]["begun_us"]);
    CHECK(record["calls"][2]["collective"] == "broadcast");
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("a rank that another's failure meets between two of its calls leaves its flight record, too") {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("rondo-flight-between-{}", ::getpid());
  std::filesystem::create_directory(folder);
  const Setting setting("RONDO_FLIGHT_RECORDER", folder);
  meet(2, {}, [](Communicator& comm) {
    all_reduce_once(comm, 10);
    comm.abort();  // whoever comes first; it is known when this returns
    comm.barrier();
  });
  for (const int rank : {0, 1}) CHECK(std::filesystem::exists(folder / fmt::format("rank{}.json", rank)));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a flight record is UTF-8, whatever a failure names") {
  const std::string name = "z\xfcrich \xe2\x82\xac \xc3 \xf0\x9f\x98\x80\xff\"\\\n";
  CHECK(nlohmann::json::parse(json_text(name)) == "z\ufffdrich \u20ac \ufffd \U0001f600\ufffd\"\\\n");
}

TEST_CASE("every algorithm by name gives the same sums") {
  const std::string algorithm =
      GENERATE("ring", "tree", "recursive_doubling", "halving_doubling", "one_shot", "two_shot", "star");
  const std::string transport = GENERATE("shm", "tcp", "queue");
  const Setting by_name("RONDO_ALGORITHM", algorithm), over("RONDO_TRANSPORT", transport);
  for (const auto& error : meet(5, {}, [](Communicator& comm) {
         for (const std::size_t count : {1U, 1000U, 300'001U}) all_reduce_once(comm, count);
       })) {
    CAPTURE(algorithm, transport, sentence_of(error));
    CHECK_FALSE(error);
  }
}

// Of a small all_reduce, when each rank is bound to one of this process' cores.
std::string algorithm_on(const std::vector<int>& cores, const std::string& transport, const std::string& nodes = "") {
  const Setting over("RONDO_TRANSPORT", transport);
  Options options;
  options.node = nodes;
  std::string chosen;
  const auto errors = meet(
      static_cast<int>(cores.size()), options,
      [&](Communicator& comm) {
        all_reduce_once(comm, 10);
        const auto record = nlohmann::json::parse(comm.flight_record());
        if (comm.rank() == 0) chosen = record["calls"][0]["algorithm"];
      },
      [&](int rank) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cores[static_cast<std::size_t>(rank)], &one);
        expect(::sched_setaffinity(0, sizeof one, &one) == 0, "cannot bind a thread to a core");
      });
  for (const auto& error : errors) CHECK(sentence_of(error) == "");
  return chosen;
}

TEST_CASE("ranks that outnumber their host's cores and have only sockets reduce in few messages") {
  cpu_set_t set;
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  std::vector<int> usable;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) usable.push_back(core);
  }
  CHECK(algorithm_on({usable[0], usable[0]}, "tcp") == "star");
  CHECK(algorithm_on(std::vector<int>(4, usable[0]), "tcp", "pairs") == "recursive_doubling");
  CHECK(algorithm_on({usable[0], usable[0]}, "shm") == "board");
  if (usable.size() > 1) CHECK(algorithm_on({usable[0], usable[1]}, "tcp") == "recursive_doubling");
}

TEST_CASE("a waiting rank leaves its core to others") {
  const std::string transport = GENERATE("shm", "tcp", "queue");
  const Setting setting("RONDO_TRANSPORT", transport);
  constexpr std::chrono::milliseconds kLate[] = {40ms, 400ms};
  std::chrono::nanoseconds spent[2];
  const auto errors = meet(2, {}, [&](Communicator& comm) {
    for (std::size_t i = 0; i < 2; ++i) {
      comm.barrier();
      if (comm.rank() == 0) {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable().wait_for(lock, kLate[i]);  // a rank that is busy elsewhere
        comm.barrier();
      } else {
        const auto before = time_of_thread();
        comm.barrier();
        spent[i] = time_of_thread() - before;
      }
    }
  });
  for (const auto& error : errors) CHECK_FALSE(error);
  CAPTURE(transport, spent[0].count(), spent[1].count());
  // Both times it spins before it sleeps, which takes long in a sanitized build on a busy machine.
  CHECK(spent[1] < 2 * spent[0] + kLate[1] / 20);
}

TEST_CASE("mismatch, departure and abort cross nodes") {
  const std::string nodes = GENERATE("each", "pairs"), transport = GENERATE("", "queue");
  const Setting setting("RONDO_TRANSPORT", transport);
  Options options;
  options.node = nodes;
  SECTION("mismatch where the algorithms never meet") {
    const auto begun = std::chrono::steady_clock::now();
    const auto errors = meet(4, options, [](Communicator& comm) {
      std::vector<float> data(comm.rank() == 3 ? 1 : 1 << 20, 1.0F);
      comm.all_reduce(data, ReduceOp::sum);
      comm.barrier();
    });
    for (const auto& error : errors) {
      CAPTURE(nodes, transport, sentence_of(error));
      CHECK(code_of(error) == ErrorCode::mismatch);
      CHECK(sentence_of(error).find("rank 3") != std::string::npos);
      CHECK(sentence_of(error).find("count") != std::string::npos);
    }
    CHECK(std::chrono::steady_clock::now() - begun < 5s);
  }
  SECTION("departure") {
    const auto errors = meet(4, options, [](Communicator& comm) {
      comm.barrier();
      if (comm.rank() != 2) comm.barrier();
    });
    for (const int r : {0, 1, 3}) {
      CAPTURE(nodes, transport, r, sentence_of(errors[static_cast<std::size_t>(r)]));
      CHECK(code_of(errors[static_cast<std::size_t>(r)]) == ErrorCode::peer_lost);
      CHECK(sentence_of(errors[static_cast<std::size_t>(r)]).find("rank 2") != std::string::npos);
    }
  }
  SECTION("abort") {
    const auto errors = meet(4, options, [](Communicator& comm) {
      if (comm.rank() == 1) comm.abort();
      comm.barrier();
    });
    for (const auto& error : errors) CHECK(code_of(error) == ErrorCode::aborted);
  }
}
