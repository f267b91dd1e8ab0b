// SPDX-License-Identifier: Apache-2.0
// Averages of types whose sums do not fit them: the wide sum divided once, by every algorithm, over every transport, of
// any size. Inputs are the largest and the smallest values there are, and what comes of them is known exactly.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <rondo/device.hpp>

#include "tests/comm/stress/worlds.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr Collective kReducing[] = {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
constexpr std::size_t kCounts[] = {4, 1000, 30'000};  // sanitizers take minutes for more
#else
constexpr std::size_t kCounts[] = {4, 1000, 300'000};
#endif

template <class T>
constexpr double largest() {
  if constexpr (std::is_integral_v<T>) return static_cast<double>(std::numeric_limits<T>::max());
  if constexpr (std::is_same_v<T, float16>) return 65504;
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1.fep127;
  if constexpr (std::is_same_v<T, float8_e4m3>) return 448;
  if constexpr (std::is_same_v<T, float8_e5m2>) return 57344;
}
template <class T>
constexpr double smallest() {
  if constexpr (std::is_integral_v<T>) return static_cast<double>(std::numeric_limits<T>::min());
  return -largest<T>();
}
template <class T>
T as(double value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(value);  // toward zero, as averages of integers
  else
    return T(static_cast<float>(value));
}

// Of one rank; all of these have few bits.
template <class T>
double input(int rank, int size, std::size_t i) {
  if (i % 3 == 0) return largest<T>();
  if (i % 3 == 1) return smallest<T>();
  return i / 3 % static_cast<std::size_t>(size) == static_cast<std::size_t>(rank) ? 0 : largest<T>();
}
template <class T>
T expected(int size, std::size_t i) {
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += input<T>(rank, size, i);
  return as<T>(sum / size);
}

template <class T>
class Average {
 public:
  Average(Communicator& comm, Collective collective, std::size_t count)
      : comm_(comm), collective_(collective), count_(count) {
    const auto size = static_cast<std::size_t>(comm.world_size());
    const bool scatters = collective == Collective::reduce_scatter;
    first_ = scatters ? static_cast<std::size_t>(comm.rank()) * count : 0;
    for (std::size_t i = 0; i < (scatters ? size * count : count); ++i)
      in_.push_back(as<T>(input<T>(comm.rank(), comm.world_size(), i)));
  }
  const std::vector<T>& in() const { return in_; }
  Call call(const T* in, T* out) const {
    return {.collective = collective_,
            .send = in,
            .recv = out,
            .count = count_,
            .dtype = data_type_of<T>,
            .op = ReduceOp::average,
            .root = collective_ == Collective::reduce ? comm_.world_size() - 1 : -1};
  }
  void check(const std::vector<T>& out) const {
    if (collective_ == Collective::reduce && comm_.rank() + 1 != comm_.world_size()) return;
    for (std::size_t i = 0; i < count_; ++i) {
      const T right = expected<T>(comm_.world_size(), first_ + i);
      if (std::memcmp(&out[i], &right, sizeof(T)) == 0) continue;
      const auto number = [](T value) { return static_cast<double>(static_cast<float>(value)); };
      expect(false,
             fmt::format("rank {}, {} of {} {}: element {} is {}, not {}", comm_.rank(), rondo::name_of(collective_),
                         count_, rondo::name_of(data_type_of<T>), i, number(out[i]), number(right)));
    }
  }

 private:
  Communicator& comm_;
  Collective collective_;
  std::size_t count_, first_ = 0;
  std::vector<T> in_;
};

// f(T{}) for every type narrower than 64 bits that is not added up as it is.
template <class F>
void for_each_narrow(F f) {
  f(std::int8_t{});
  f(std::uint8_t{});
  f(std::int32_t{});
  f(std::uint32_t{});
  f(float16{});
  f(bfloat16{});
  f(float8_e4m3{});
  f(float8_e5m2{});
}

// In memory of this process; short ones over themselves, too. The counts are of what a rank sends.
void average_all(Communicator& comm, std::span<const std::size_t> counts) {
  for_each_narrow([&](auto type) {
    using T = decltype(type);
    for (const Collective collective : kReducing) {
      const bool scatters = collective == Collective::reduce_scatter;
      for (const std::size_t count : counts) {
        const std::size_t of_rank = scatters ? count / static_cast<std::size_t>(comm.world_size()) + 1 : count;
        const Average<T> average(comm, collective, of_rank);
        std::vector<T> out(of_rank), over = average.in();
        comm.submit(average.call(average.in().data(), out.data()));
        average.check(out);
        if (scatters || count > 1000) continue;
        comm.submit(average.call(over.data(), over.data()));
        average.check(over);
      }
    }
  });
}

void check_world(Kind kind, int size, const Body& body) {
  for (const auto& error : run_world(kind, size, {.timeout = 60s}, [&](Communicator& comm) {
         try {
           body(comm);
         } catch (...) {
           comm.abort();
           throw;
         }
       })) {
    INFO(kind << " by " << size << ": " << sentence_of(error));
    CHECK_FALSE(error);
  }
}

}  // namespace

TEST_CASE("averages on hosts: every algorithm, transport, type and size") {
  constexpr Kind kKinds[] = {Kind::local,  Kind::shm,   Kind::tcp,   Kind::pairs,
                             Kind::uneven, Kind::woven, Kind::queue, Kind::queue_pairs};
  constexpr const char* kAlgorithms[] = {
      "",       "ring",     "tree",  "recursive_doubling", "halving_doubling", "one_shot", "two_shot", "star",
      "direct", "pairwise", "board", "two_level"};
  constexpr int kSizes[] = {2, 3, 4, 8};
  const auto all = static_cast<int>(std::size(kAlgorithms));
  const std::span<const std::size_t> counts(kCounts), short_ones = counts.first(2);
  for (const auto& v : PairwiseCases({static_cast<int>(std::size(kKinds)), 4, all}, rotating_seed()).all()) {
    const Setting by_name("RONDO_ALGORITHM", kAlgorithms[v[2]]);
    INFO("RONDO_ALGORITHM=" << kAlgorithms[v[2]]);
    const int size = kSizes[v[1]];
    check_world(kKinds[v[0]], size, [&](Communicator& comm) { average_all(comm, size < 8 ? counts : short_ones); });
  }
}

TEST_CASE("averages over two levels in strips: more than one, the last one short") {
  constexpr std::size_t kCount = (4 << 20) + 1001;  // of f16 and bytes
  check_world(Kind::pairs, 4, [](Communicator& comm) {
    const auto check = [&](auto type, Collective collective, std::size_t count) {
      using T = decltype(type);
      const Average<T> average(comm, collective, count);
      std::vector<T> out(count);
      comm.submit(average.call(average.in().data(), out.data()));
      expect(last_algorithm(comm) == "two_level", "it went another way");
      average.check(out);
    };
    check(std::uint8_t{}, Collective::all_reduce, kCount);
    check(float16{}, Collective::reduce, kCount);
    check(float16{}, Collective::reduce_scatter, kCount / 4);
  });
}

TEST_CASE("averages in windows, and of asynchronous calls") {
  const int size = GENERATE(2, 4);
  check_world(GENERATE(Kind::local, Kind::shm, Kind::pairs), size, [](Communicator& comm) {
    for_each_narrow([&](auto type) {
      using T = decltype(type);
      for (const Collective collective : kReducing) {
        const Average<T> average(comm, collective, 50'001);
        auto in = comm.allocate<T>(average.in().size());
        auto out = comm.allocate<T>(50'001);
        std::copy(average.in().begin(), average.in().end(), in.data());
        for (int call = 0; call < 3; ++call) {
          comm.submit(average.call(in.data(), out.data()));
          average.check({out.data(), out.data() + out.size()});
        }
        std::vector<T> later(50'001);
        if (collective != Collective::all_reduce) continue;
        comm.async()
            .all_reduce(average.in().data(), later.data(), later.size(), data_type_of<T>, ReduceOp::average)
            .wait();
        average.check(later);
      }
    });
  });
}

TEST_CASE("averages of processes whose memory the kernel copies") {
  const TuningFile copies("single_copy_bytes 0\n");
  for (const int size : {2, 3}) {
    check_ended_well(fork_ranks(size, 60s, [size](int rank, const std::shared_ptr<Store>& store) {
      Communicator comm = join_forked(rank, size, store);
      average_all(comm, kCounts);
    }));
  }
}

TEST_CASE("averages on devices: every algorithm, protocol and type, in windows too") {
  constexpr const char* kAlgorithms[] = {"", "ring", "one_shot", "two_shot", "halving_doubling", "direct", "pairwise"};
  constexpr const char* kProtocols[] = {"", "simple", "ll", "ll128", "window", "push"};
  constexpr int kSizes[] = {2, 3, 4};
  for (const auto& v : PairwiseCases({7, 6, 3}, rotating_seed()).all()) {
    const Setting by_name("RONDO_ALGORITHM", kAlgorithms[v[0]]), protocol("RONDO_PROTOCOL", kProtocols[v[1]]);
    INFO("RONDO_ALGORITHM=" << kAlgorithms[v[0]] << " RONDO_PROTOCOL=" << kProtocols[v[1]]);
    check_world(Kind::sim, kSizes[v[2]], [](Communicator& comm) {
      for_each_narrow([&](auto type) {
        using T = decltype(type);
        for (const Collective collective : kReducing) {
          for (const std::size_t count : {std::size_t{4}, std::size_t{1000}, std::size_t{10'007}}) {
            const Average<T> average(comm, collective, count);
            DeviceArray<T> in(comm.device(), average.in()), out(comm.device(), count);
            comm.submit(average.call(in.data(), out.data()));
            comm.synchronize();
            average.check(out.to_host());
          }
        }
      });
    });
  }
}

// Rings would carry partial sums from rank to rank.
TEST_CASE("wide types, sums and 64 bits go the way they went; averages of narrow types fold at once") {
  const auto names = [](const std::string& wanted) {
    const Setting by_name("RONDO_ALGORITHM", wanted);
    std::string seen;
    check_world(Kind::tcp, 3, [&](Communicator& comm) {
      const auto name = [&](auto type, ReduceOp op) {
        std::vector<decltype(type)> values(300'000);
        comm.all_reduce(values, op);
        if (comm.rank() == 0) seen += last_algorithm(comm) + " ";
      };
      name(float{}, ReduceOp::average);
      name(double{}, ReduceOp::average);
      name(std::int64_t{}, ReduceOp::average);
      name(float16{}, ReduceOp::sum);
      name(float16{}, ReduceOp::average);
      name(std::uint8_t{}, ReduceOp::average);
    });
    return seen;
  };
  CHECK(names("tree") == "tree tree tree tree two_shot two_shot ");
  CHECK(names("one_shot") == "one_shot one_shot one_shot one_shot one_shot one_shot ");
}

TEST_CASE("64-bit averages are of the sum that wrapped, the same everywhere") {
  const std::string algorithm = GENERATE("", "ring", "tree", "two_shot");
  const Setting by_name("RONDO_ALGORITHM", algorithm);
  const Kind kind = GENERATE(Kind::local, Kind::tcp, Kind::pairs);
  check_world(kind, 4, [](Communicator& comm) {
    std::vector<std::int64_t> values(1000, std::numeric_limits<std::int64_t>::max());
    comm.all_reduce(values, ReduceOp::average);
    for (const std::int64_t value : values) expect(value == -1, fmt::format("{}", value));  // -4 / 4
    std::vector<std::uint64_t> naturals(1000, (std::uint64_t{1} << 63) + 8);
    comm.all_reduce(naturals, ReduceOp::average);
    for (const std::uint64_t value : naturals) expect(value == 8, fmt::format("{}", value));
  });
}
