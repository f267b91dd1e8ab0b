// SPDX-License-Identifier: Apache-2.0
// All_to_all_v over memory that peers reach: long blocks from where they lie, whoever is ahead; counts that differ are
// found before anybody touches a peer's memory.
#include "tests/comm/node/zero_copy_worlds.hpp"
#include "tests/support/few_cores.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

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

}  // namespace

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
