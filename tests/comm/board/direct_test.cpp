// SPDX-License-Identifier: Apache-2.0
// Collectives over memory that peers reach: the bits are those of the ways that copy, whatever lies where; what does
// not fit together is found before anybody touches a peer's memory; nothing is left behind.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "comm/board/claims.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/few_cores.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kCount = 20'011;      // of floats: beyond what is sent in one piece, on every path
constexpr std::size_t kShortCount = 3'011;  // of two ranks it is short where buffers cannot be used in place

std::size_t as_size(int value) { return static_cast<std::size_t>(value); }

// One collective of floats, and the shapes of its buffers on this rank.
struct Shape {
  Call call;
  std::vector<std::size_t> counts;
  std::size_t send = 0, recv = 0, own_block = 0;  // elements; where this rank's block lies in the larger buffer

  Shape(Collective collective, ReduceOp op, int rank, int size, std::size_t count) {
    const CollectiveRow& row = row_of(collective);
    call = {.collective = collective, .count = count, .dtype = DataType::f32, .op = op, .root = row.rooted ? 1 : -1};
    if (row.send == Extent::counts || row.recv == Extent::counts) {
      for (int r = 0; r < size; ++r) counts.push_back(r == 1 ? 0 : count * as_size(r + 1) + 7);
      call.count = counts[as_size(rank)];
      own_block = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
    } else {
      own_block = as_size(rank) * count;
    }
    const auto elements = [&](Extent extent) -> std::size_t {
      if (extent == Extent::world) return count * as_size(size);
      if (extent == Extent::counts) return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      return extent == Extent::one ? call.count : 0;
    };
    send = elements(row.send);
    recv = elements(row.recv);
  }
  void run(Communicator& comm, const float* from, float* into) {
    const CollectiveRow& row = row_of(call.collective);
    call.send = from;
    call.recv = into;
    if (row.send == Extent::counts) call.send_counts = counts;
    if (row.recv == Extent::counts) call.recv_counts = counts;
    comm.submit(call);
  }
  std::size_t longest() const { return std::max<std::size_t>({send, recv, 1}); }
};

void fill(std::span<float> values, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> any(-1000, 1000);
  for (float& value : values) value = any(random);
}

bool went_direct(const Communicator& comm) { return test::last_algorithm(comm) == "zero_copy"; }

enum class Memory { separate, in_place, sends_alone, receives_alone };
constexpr Memory kMemories[] = {Memory::separate, Memory::in_place, Memory::sends_alone, Memory::receives_alone};

// Where the buffers of one run lie: in windows, or in the rank's own memory.
struct Buffers {
  std::vector<float> own_send, own_recv;
  float* send;
  float* recv;

  Buffers(const Shape& shape, int rank, Memory memory, float* window, float* other_window) {
    own_send.resize(shape.longest());
    own_recv.resize(shape.longest());
    send = memory == Memory::receives_alone || window == nullptr ? own_send.data() : window;
    recv = memory == Memory::sends_alone || window == nullptr ? own_recv.data() : other_window;
    if (memory != Memory::in_place) return;
    const bool at_root = shape.call.root < 0 || rank == shape.call.root;
    const bool sends_more = shape.send > shape.recv, receives_more = shape.recv > shape.send;
    if (!at_root && shape.call.collective != Collective::broadcast) return;
    if (receives_more) send = recv + shape.own_block;
    if (sends_more) recv = send + shape.own_block;
    if (!sends_more && !receives_more) recv = send;
  }
};

void check_one(Communicator& comm, Collective collective, ReduceOp op, std::size_t count, Memory memory,
               std::span<float> window, std::span<float> other_window, std::uint64_t seed) {
  const bool exchanges = collective == Collective::all_to_all;
  if (exchanges && memory == Memory::in_place) return;
  Shape shape(collective, op, comm.rank(), comm.world_size(), count);
  const auto run = [&](const Buffers& buffers) {
    std::fill_n(buffers.recv, shape.recv, -7.0F);
    fill({buffers.send, shape.send}, seed + as_size(comm.rank()));
    shape.run(comm, buffers.send, buffers.recv);
    return std::vector<float>(buffers.recv, buffers.recv + shape.recv);
  };
  const auto copied = run(Buffers(shape, comm.rank(), memory, nullptr, nullptr));
  expect(!went_direct(comm), "ordinary memory was used in place");
  const auto what =
      fmt::format("{} of {} {} with memory {}", name_of(collective), count, name_of(op), static_cast<int>(memory));
  const bool certain = memory == Memory::separate || memory == Memory::in_place;
  bool direct = false;
  for (int attempt = 0; attempt < 2 && !direct; ++attempt) {  // the call that copied has postponed the next look
    const auto result = run(Buffers(shape, comm.rank(), memory, window.data(), other_window.data()));
    direct = went_direct(comm);
    expect(std::ranges::equal(std::as_bytes(std::span(copied)), std::as_bytes(std::span(result))), what + ": bits");
  }
  expect(direct || !certain, what + ": copied");
}

bool is_tested(const CollectiveRow& row) {
  return row.collective != Collective::barrier && row.collective != Collective::send &&
         row.collective != Collective::recv && row.collective != Collective::all_to_all_v;
}

Options reproducible() {
  Options options;
  options.timeout = 30s;
  options.determinism = Determinism::reproducible;
  return options;
}

void check_all(Kind kind, int world, const Options& options, const Body& body) {
  for (const auto& error : run_world(kind, world, options, [&](Communicator& comm) {
         try {
           body(comm);
         } catch (...) {
           comm.abort();
           throw;
         }
       })) {
    INFO(sentence_of(error));
    CHECK_FALSE(error);
  }
}

// Blocks of different lengths, one of them empty: rank s sends rank r count * (s + r) elements, which tell both, their
// place, and the seed, so that who reads too late is found out.
void exchange_counted(Communicator& comm, std::size_t count, std::uint32_t* from, std::uint32_t* into,
                      std::size_t seed) {
  const auto length = [&](int one, int another) { return count * as_size(one + another); };
  const auto value = [seed](int source, int sink, std::size_t i) {
    return static_cast<std::uint32_t>(source * 16 + sink) << 24 | static_cast<std::uint32_t>((i + seed) & 0xffffff);
  };
  const int rank = comm.rank();
  std::vector<std::size_t> counts;
  std::size_t at = 0;
  for (int r = 0; r < comm.world_size(); ++r) {
    counts.push_back(length(rank, r));
    for (std::size_t i = 0; i < counts.back(); ++i) from[at++] = value(rank, r, i);
  }
  std::fill_n(into, at + 1, ~0U);
  comm.all_to_all_v(std::span<const std::uint32_t>(from, at), std::span<const std::size_t>(counts),
                    std::span<std::uint32_t>(into, at), std::span<const std::size_t>(counts));
  at = 0;
  for (int r = 0; r < comm.world_size(); ++r) {
    for (std::size_t i = 0; i < length(rank, r); ++i, ++at) {
      if (into[at] != value(r, rank, i)) throw std::runtime_error(fmt::format("element {} of rank {}'s block", i, r));
    }
  }
  expect(into[at] == ~0U, "beyond the last block");
}

// Blocks from a root or to it, whose values tell the call and the rank. `whole` is what the root has for all; what
// others have is their own. True: they went direct.
bool check_rooted(Communicator& comm, Collective collective, std::span<float> whole, int call, int root = 1) {
  const std::size_t count = whole.size() / as_size(comm.world_size());
  const auto value = [call](int rank) { return static_cast<float>(call * 16 + rank); };
  const auto block = [&](int rank) { return whole.subspan(as_size(rank) * count, count); };
  const auto check = [&](std::span<const float> values, int rank) {
    const bool right = std::ranges::all_of(values, [&](float found) { return found == value(rank); });
    expect(right, fmt::format("{}, call {}, rank {}'s block", name_of(collective), call, rank));
  };
  const bool at_root = comm.rank() == root, gathers = collective == Collective::gather;
  std::vector<float> own(count, gathers ? value(comm.rank()) : -1);
  for (int rank = 0; rank < comm.world_size() && at_root; ++rank)
    std::ranges::fill(block(rank), gathers ? -1 : value(rank));
  if (collective == Collective::scatter) {
    comm.scatter(std::span<const float>(whole), std::span(own), root);
    check(own, comm.rank());
  } else if (gathers) {
    comm.gather(std::span<const float>(own), whole, root);
    for (int rank = 0; rank < comm.world_size() && at_root; ++rank) check(block(rank), rank);
  } else {
    comm.broadcast(at_root ? block(0) : std::span(own), root);
    check(at_root ? block(0) : std::span(own), 0);
  }
  return went_direct(comm);
}

std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}
std::size_t maps_of_windows() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("rondo-node") != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("windows give the bits that copying gives, wherever the buffers lie") {
  const int world = GENERATE(2, 3, 5);
  const std::size_t count = GENERATE(kCount, kShortCount);
  const Memory memory = GENERATE(from_range(std::begin(kMemories), std::end(kMemories)));
  const TuningFile at_once("direct_bytes 128\n");  // also copies from a root, by more ranks than cores
  check_all(Kind::shm, world, reproducible(), [&](Communicator& comm) {
    const std::size_t room = kCount * 20 + 100;
    const auto window = comm.allocate<float>(room), other = comm.allocate<float>(room);
    std::uint64_t seed = 1;
    for (const CollectiveRow& row : collective_table()) {
      if (!is_tested(row)) continue;
      for (const ReduceOp op : {ReduceOp(ReduceOp::sum), ReduceOp(ReduceOp::average), ReduceOp(ReduceOp::max),
                                ReduceOp::premul_sum(1.0 / (comm.rank() + 3))}) {
        if (!row.reduces && op != ReduceOp::sum) continue;
        // Offsets that differ between ranks, and no alignment to speak of.
        const std::size_t from = as_size(comm.rank()) * 3 + 1;
        check_one(comm, row.collective, op, count, memory, window.span().subspan(from), other.span().subspan(from),
                  ++seed);
      }
    }
  });
}

TEST_CASE("all_to_all_v takes long blocks from where they lie, and short ones with the counts") {
  const Kind kind = GENERATE(Kind::shm, Kind::local);
  const int world = GENERATE(2, 3, 5);
  check_all(kind, world, {}, [&](Communicator& comm) {
    const std::size_t room = kCount * as_size(2 * world * world);
    const auto window = comm.allocate<std::uint32_t>(room), other = comm.allocate<std::uint32_t>(room);
    std::vector<std::uint32_t> own(room), taken(room);
    std::size_t seed = 0;
    const auto check = [&](std::size_t count, std::uint32_t* from, std::uint32_t* into, bool direct) {
      exchange_counted(comm, count, from, into, ++seed);
      expect(went_direct(comm) == direct, fmt::format("{} elements went the other way", count));
    };
    const bool threads = kind == Kind::local;
    for (int round = 0; round < 3; ++round) {
      const std::size_t shift = as_size(comm.rank() + round);  // offsets that differ between ranks
      check(kCount, window.data() + shift, other.data(), true);
      check(kCount, window.data() + shift, taken.data(), true);  // nobody looks where it goes
      check(kCount, own.data(), other.data(), threads);
      check(kCount, comm.rank() == 1 ? own.data() : window.data(), other.data(), threads);
      check(100, window.data() + shift, other.data(), false);
      check(0, window.data(), other.data(), false);
    }
  });
}

// Of two ranks on one core the first has brought its next chunk to the place where the other had said what it sends and
// from where, before that one finds out who is within reach. Zeroes there say that it sends nothing.
TEST_CASE("two ranks come to the same answer when all_to_all_v asks what is within reach, whoever is ahead") {
  const FewCores one(1);
  check_all(Kind::shm, 2, {.timeout = 30s}, [](Communicator& comm) {
    const auto window = comm.allocate<std::uint32_t>(kCount);
    const std::vector<std::uint32_t> own(kCount, 7);
    std::vector<std::uint32_t> received(kCount);
    std::vector<std::size_t> counts(2, kCount);
    counts[as_size(comm.rank())] = 0;
    for (int round = 0; round < 100; ++round) {
      const bool reached = comm.rank() == round % 2;
      std::ranges::fill(received, ~0U);
      comm.all_to_all_v(reached ? window.data() : own.data(), counts, received.data(), counts, DataType::u32);
      expect(!went_direct(comm), "one of the ranks has no window");
      const std::uint32_t wanted = reached ? 7 : 0;
      expect(std::ranges::all_of(received, [&](std::uint32_t value) { return value == wanted; }), "what was received");
    }
  });
}

TEST_CASE("counts of all_to_all_v that differ are found before anybody touches a peer's memory") {
  const Kind kind = GENERATE(Kind::shm, Kind::local);
  const auto errors = run_world(kind, 3, {}, [](Communicator& comm) {
    const auto send = comm.allocate<float>(3 * kCount), recv = comm.allocate<float>(3 * kCount);
    std::fill(recv.span().begin(), recv.span().end(), -7.0F);
    const std::vector<std::size_t> to(3, kCount);
    std::vector<std::size_t> from(3, kCount);
    if (comm.rank() == 1) --from[2];
    const auto error = thrown_by([&] { comm.all_to_all_v(send.data(), to, recv.data(), from, DataType::f32); });
    if (comm.rank() == 1) {
      for (const float value : recv.span().subspan(2 * kCount)) expect(value == -7.0F, "a block of another length");
    }
    if (error) std::rethrow_exception(error);
  });
  for (const auto& error : errors) CHECK(code_of(error) == ErrorCode::mismatch);
}

TEST_CASE("threads use any memory in place, and get the sums of exact numbers") {
  const int world = GENERATE(2, 3, 4);
  const std::size_t count = GENERATE(std::size_t{20'000}, std::size_t{300'007}, std::size_t{2'500'001});
  const bool in_place = GENERATE(false, true);
  check_all(Kind::local, world, {}, [&](Communicator& comm) {
    std::vector<std::int32_t> mine(count), sum(count, -1);
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<std::int32_t>(i) + comm.rank() * (round + 1);
      if (in_place) {
        comm.all_reduce(mine, ReduceOp::sum);
      } else {
        comm.all_reduce(mine, sum, ReduceOp::sum);
      }
      expect(went_direct(comm), "it was copied");
      const auto& result = in_place ? mine : sum;
      for (std::size_t i = 0; i < count; ++i) {
        const int expected = static_cast<int>(i) * world + (round + 1) * world * (world - 1) / 2;
        if (result[i] != expected) throw std::runtime_error(fmt::format("element {} is {}", i, result[i]));
      }
    }
  });
}

TEST_CASE("more ranks than a work has pieces do a share each") {
  constexpr int kWorld = static_cast<int>(comm::Claims::kMost) + 2;
  check_all(Kind::local, kWorld, {}, [](Communicator& comm) {
    std::vector<std::int32_t> values(kCount);
    for (int round = 1; round <= 20; ++round) {
      std::fill(values.begin(), values.end(), comm.rank() * round);
      comm.all_reduce(values, ReduceOp::sum);
      expect(went_direct(comm), "it was copied");
      const auto sum = round * kWorld * (kWorld - 1) / 2;
      expect(std::ranges::all_of(values, [&](std::int32_t value) { return value == sum; }), "a wrong sum");
    }
  });
}

TEST_CASE("without a window nothing is looked for, and short calls never look") {
  check_all(Kind::shm, 2, {}, [](Communicator& comm) {
    std::vector<float> data(kCount, 1);
    comm.all_reduce(data, ReduceOp::sum);
    expect(!went_direct(comm), "there is no window");
    const auto window = comm.allocate<float>(kCount);
    comm.all_reduce(window.span().first(100), ReduceOp::sum);
    expect(!went_direct(comm), "100 floats are few");
    comm.all_reduce(window.span(), ReduceOp::sum);
    expect(went_direct(comm), "all of it");
  });
}

TEST_CASE("copies from a root or to one by ranks that share cores are made in place when they are not short") {
  const FewCores two(2);
  const int world = GENERATE(2, 3);
  check_all(Kind::shm, world, {}, [world](Communicator& comm) {
    constexpr std::size_t kLong = (8 << 10) / sizeof(float);
    const auto window = comm.allocate<float>(3 * kLong), other = comm.allocate<float>(3 * kLong);
    const auto check = [&](Collective collective, std::size_t count, bool direct) {
      Shape shape(collective, ReduceOp::sum, comm.rank(), world, count);
      const bool gathers = collective == Collective::gather;
      shape.run(comm, gathers ? other.data() : window.data(), gathers ? window.data() : other.data());
      expect(went_direct(comm) == direct, fmt::format("{} of {} went the other way", name_of(collective), count));
    };
    const bool crowded = world > static_cast<int>(allowed_cores().size());
    for (const Collective collective : {Collective::broadcast, Collective::gather, Collective::scatter}) {
      const std::size_t blocks = collective == Collective::broadcast ? 1 : as_size(world);
      if (crowded) check(collective, (kLong - 64) / blocks, false);
      check(collective, (kLong + 64) / blocks, true);
    }
    if (crowded) check(Collective::reduce, 2 * kLong - 64, false);
    check(Collective::reduce, 2 * kLong + 64, true);
  });
}

TEST_CASE("who moves from or to a root waits for the root alone, wherever its buffer lies this time") {
  const FewCores two(2);
  const Collective collective = GENERATE(Collective::scatter, Collective::gather, Collective::broadcast);
  std::atomic<int> left{0};  // calls that rank 0 has left while rank 2 was waiting for that
  check_all(Kind::shm, 3, {}, [&](Communicator& comm) {
    constexpr std::size_t kWhole = 3 * (256 << 10) / sizeof(float);
    const auto window = comm.allocate<float>(kWhole);
    std::vector<float> ordinary(kWhole);
    int call = 0;
    expect(check_rooted(comm, collective, window.span(), ++call), "the first call went the other way");
    for (int waited = 1; waited <= 5; ++waited) {
      const auto until = std::chrono::steady_clock::now() + 20s;
      while (comm.rank() == 2 && left.load() < waited) {
        expect(std::chrono::steady_clock::now() < until, "rank 0 waits for rank 2");
        std::this_thread::yield();
      }
      expect(check_rooted(comm, collective, window.span(), ++call), "it went the other way");
      if (comm.rank() == 1) expect(left.load() == waited, "the root did not wait for all");
      if (comm.rank() == 0) ++left;
    }
    expect(!check_rooted(comm, collective, ordinary, ++call), "ordinary memory was used in place");
    int misses = 0;
    while (misses < 3 && !check_rooted(comm, collective, window.span(), ++call)) ++misses;
    expect(misses < 3, "calls still go the other way");
    for (int turn = 0; turn < 60; ++turn) {  // also from root to root
      const bool in_window = turn >= 30 || turn % 5 != 0;
      check_rooted(comm, collective, in_window ? window.span() : std::span(ordinary), ++call, turn / 2 % 3);
    }
  });
}

TEST_CASE("two ranks copy blocks that differ between windows, whoever has more") {
  const auto counts = GENERATE(std::array<std::size_t, 2>{90'000, 20'000}, std::array<std::size_t, 2>{20'000, 90'000},
                               std::array<std::size_t, 2>{0, 50'001}, std::array<std::size_t, 2>{50'001, 0});
  check_all(Kind::shm, 2, reproducible(), [&](Communicator& comm) {
    const std::size_t total = counts[0] + counts[1], mine = counts[as_size(comm.rank())];
    const auto whole = comm.allocate<float>(total + 1), own = comm.allocate<float>(total + 1);
    const std::span<float> all = whole.span().first(total), block = own.span().first(mine);
    const auto value = [&](int call, std::size_t at) { return static_cast<float>(at * 8 + as_size(call)); };
    const std::size_t before = comm.rank() == 0 ? 0 : counts[0];
    for (int call = 0; call < 4; ++call) {
      const int root = call % 2;
      std::ranges::fill(all, -1.0F);
      for (std::size_t i = 0; i < mine; ++i) block[i] = value(call, before + i);
      comm.gather_v(std::span<const float>(block), all, counts, root);
      expect(went_direct(comm), "a gather_v was copied");
      for (std::size_t i = 0; i < total && comm.rank() == root; ++i)
        if (all[i] != value(call, i)) expect(false, fmt::format("gather_v, call {}, element {}", call, i));
      std::ranges::fill(all, -1.0F);
      comm.all_gather_v(std::span<const float>(block), all, counts);
      expect(went_direct(comm), "an all_gather_v was copied");
      for (std::size_t i = 0; i < total; ++i)
        if (all[i] != value(call, i)) expect(false, fmt::format("all_gather_v, call {}, element {}", call, i));
      std::ranges::fill(block, -1.0F);
      for (std::size_t i = 0; i < total; ++i) all[i] = value(call + 4, i);
      comm.scatter_v(std::span<const float>(all), block, counts, root);
      expect(went_direct(comm), "a scatter_v was copied");
      for (std::size_t i = 0; i < mine; ++i)
        if (block[i] != value(call + 4, before + i))
          expect(false, fmt::format("scatter_v, call {}, element {}", call, i));
    }
  });
}

TEST_CASE("calls that keep missing are tried less and less often, and a hit is remembered") {
  check_all(Kind::shm, 2, {}, [](Communicator& comm) {
    const auto window = comm.allocate<float>(kCount);
    std::vector<float> own(kCount, 1);
    int hits = 0;
    for (int i = 0; i < 40; ++i) comm.all_reduce(own, ReduceOp::sum);
    for (int i = 0; i < 200; ++i) {
      comm.all_reduce(window.span(), ReduceOp::sum);
      hits += went_direct(comm) ? 1 : 0;
    }
    expect(hits >= 130 && hits < 200, fmt::format("{} of 200 went direct", hits));
    comm.all_reduce(window.span(), ReduceOp::sum);
    expect(went_direct(comm), "the last one did");
  });
}

TEST_CASE("counts that differ are found before anybody touches a peer's memory") {
  const Kind kind = GENERATE(Kind::shm, Kind::local);
  const auto errors = run_world(kind, 3, {}, [](Communicator& comm) {
    const auto send = comm.allocate<float>(kCount + 1), recv = comm.allocate<float>(kCount + 1);
    std::fill(send.span().begin(), send.span().end(), 1.0F);
    std::fill(recv.span().begin(), recv.span().end(), -7.0F);
    const std::size_t count = kCount + (comm.rank() == 1 ? 1 : 0);
    std::exception_ptr error;
    try {
      comm.all_reduce(std::span<const float>(send.span().first(count)), recv.span().first(count), ReduceOp::sum);
    } catch (...) {
      error = std::current_exception();
    }
    for (const float value : recv.span()) expect(value == -7.0F, "a buffer was written");
    if (error) std::rethrow_exception(error);
  });
  for (const auto& error : errors) {
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(sentence_of(error).find("disagree on the count of all_reduce") != std::string::npos);
  }
}

TEST_CASE("sizes that differ are a mismatch, and the communicator goes on") {
  check_all(Kind::shm, 3, {}, [](Communicator& comm) {
    expect(code_of(thrown_by([&] { comm.allocate<float>(comm.rank() == 2 ? 11 : 10); })) == ErrorCode::mismatch,
           "rank 2 asked for more");
    const auto window = comm.allocate<float>(10);
    expect(window.size() == 10 && window.data() != nullptr, "a window");
  });
}

TEST_CASE("a window beyond all memory is refused, not a shorter one given") {
  const Kind kind = GENERATE(Kind::shm, Kind::local);
  check_all(kind, 2, {}, [](Communicator& comm) {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    for (const std::size_t count : {kMost, kMost / sizeof(float) + 2, kMost / 1024}) {
      expect(code_of(thrown_by([&] { comm.allocate<float>(count); })) == ErrorCode::invalid_argument, "it is refused");
    }
    expect(comm.allocate<float>(10).size() == 10, "the communicator goes on");
  });
}

TEST_CASE("windows of nothing, of bytes, and of many megabytes are aligned and zeroed") {
  const Kind kind = GENERATE(Kind::shm, Kind::local);
  const std::size_t count = GENERATE(0u, 1u, 4097u, 33u << 20);
  check_all(kind, 2, {}, [&](Communicator& comm) {
    auto window = comm.allocate<std::uint8_t>(count);
    expect(window.size() == count && window.data() != nullptr, "a window");
    expect(reinterpret_cast<std::uintptr_t>(window.data()) % 64 == 0, "it is aligned");
    expect(std::all_of(window.span().begin(), window.span().end(), [](auto byte) { return byte == 0; }), "zeroes");
    std::fill(window.span().begin(), window.span().end(), std::uint8_t{1});
    comm.all_reduce(window.span(), ReduceOp::sum);
    expect(std::all_of(window.span().begin(), window.span().end(), [](auto byte) { return byte == 2; }), "twos");
  });
}

TEST_CASE("ranks that let go of a window early do not disturb those that still use it") {
  check_all(Kind::shm, 2, {}, [](Communicator& comm) {
    std::optional<Window<float>> first = comm.allocate<float>(kCount);
    const auto second = comm.allocate<float>(kCount);
    if (comm.rank() == 0) first.reset();
    const auto data = comm.rank() == 0 ? second.span() : first->span();
    for (int i = 0; i < 3; ++i) {
      std::fill(data.begin(), data.end(), 1.0F);
      comm.all_reduce(data, ReduceOp::sum);
      expect(went_direct(comm), "both lie in windows");
      expect(std::all_of(data.begin(), data.end(), [](float value) { return value == 2.0F; }), "the sum");
    }
  });
}

TEST_CASE("windows of split communicators, of several at once, leave no descriptor and no mapping behind") {
  std::size_t descriptors = 0, mappings = 0;
  check_all(Kind::shm, 4, {}, [&](Communicator& comm) {
    const auto count = [&](auto then) {
      comm.barrier();
      if (comm.rank() == 0) then();
      comm.barrier();
    };
    count([&] {
      descriptors = entries_of("/proc/self/fd");
      mappings = maps_of_windows();
    });
    for (int round = 0; round < 5; ++round) {
      std::vector<Window<float>> windows;
      for (int i = 0; i < 4; ++i) windows.push_back(comm.allocate<float>(kCount + as_size(i)));
      count([&] { expect(maps_of_windows() >= mappings + 4 * 4, "four ranks map four windows"); });
      windows.erase(windows.begin() + (comm.rank() + round) % 4);
      windows.erase(windows.begin());
    }
    const auto last = comm.allocate<float>(1);  // what others let go of is unmapped when a rank comes by
    const auto one_more = comm.allocate<float>(1);
    count([&] {
      expect(entries_of("/proc/self/fd") == descriptors, "descriptors are left");
      expect(maps_of_windows() == mappings + 2 * 4, "mappings are left");
    });
    Communicator half = comm.split(comm.rank() % 2, 0);
    const auto window = half.allocate<float>(kCount);
    std::fill(window.span().begin(), window.span().end(), 1.0F);
    half.all_reduce(window.span(), ReduceOp::sum);
    expect(went_direct(half) && window.span().back() == 2.0F, "the child's window");
    comm.all_reduce(window.span(), ReduceOp::sum);
    expect(!went_direct(comm) && window.span().back() == 8.0F, "the parent knows nothing of it");
  });
}

TEST_CASE("an abort in the middle gives no buffer back that peers still use") {
  constexpr std::size_t kLong = 100'000;
  for (int round = 0; round < 200; ++round) {
    int calls = 0;  // of rank 2
    const auto errors = run_world(Kind::local, 3, {}, [&](Communicator& comm) {
      for (;;) {
        std::vector<float> send(kLong, 1.0F), recv(kLong);  // freed by the exception: the sanitizers would tell
        std::jthread killer;
        if (comm.rank() == 2 && calls == round % 4) killer = std::jthread([&] { comm.abort(); });
        if (comm.rank() == 2) ++calls;
        comm.all_reduce(send, recv, ReduceOp::sum);
      }
    });
    for (const auto& error : errors) CHECK(code_of(error) == ErrorCode::aborted);
  }
}
