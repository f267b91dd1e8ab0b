// SPDX-License-Identifier: Apache-2.0
// Collectives over memory that peers reach: the bits are those of the ways that copy, whatever lies where; what does
// not fit together is found before anybody touches a peer's memory.
#include <random>
#include <thread>

#include "comm/node/meeting/claims.hpp"
#include "tests/comm/node/zero_copy_worlds.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr std::size_t kShortCount = 3'011;  // of two ranks it is short where buffers cannot be used in place

void fill(std::span<float> values, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> any(-1000, 1000);
  for (float& value : values) value = any(random);
}

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
