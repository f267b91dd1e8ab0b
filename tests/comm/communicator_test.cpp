// SPDX-License-Identifier: Apache-2.0
// The communicator with ranks as threads. Catch2's macros are for one thread: bodies report by throwing.
#include <rondo/communicator.hpp>

#include <fmt/format.h>

#include <numeric>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using test::code_of;
using test::on_ranks;
using test::run_ranks;
using test::sentence_of;

namespace {

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}
std::vector<std::int64_t> iota(std::size_t count, std::int64_t from) {
  std::vector<std::int64_t> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

}  // namespace

TEST_CASE("all_reduce sums over ranks for any world and count") {
  const int world = GENERATE(1, 2, 3, 4, 7);
  const std::size_t count = GENERATE(0u, 1u, 5u, 1000u, 300'001u);
  on_ranks(world, [&](Communicator& comm) {
    const auto mine = iota(count, comm.rank());
    std::vector<std::int64_t> sum(count, -1);
    comm.all_reduce(mine, sum, ReduceOp::sum);
    const std::int64_t ranks = world * (world - 1) / 2;
    for (std::size_t i = 0; i < count; ++i) {
      expect(sum[i] == static_cast<std::int64_t>(i) * world + ranks, fmt::format("element {} is {}", i, sum[i]));
    }
  });
}

TEST_CASE("async calls run in order behind which blocking ones queue") {
  on_ranks(3, [](Communicator& comm) {
    std::vector<std::vector<float>> data(10, std::vector<float>(1000, 1.0F));
    std::vector<Work> works;
    for (auto& d : data) works.push_back(comm.async().all_reduce(d, ReduceOp::sum));
    float last = 1;
    comm.all_reduce(std::span(&last, 1), ReduceOp::sum);
    for (auto& work : works) {
      expect(work.done(), "a blocking call overtook an async one");
      work.wait();
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      const auto times = works[i].times();
      expect(times.started < times.finished, "a call that took no time");
      expect(i == 0 || works[i - 1].times().finished <= times.started, "two calls at once");
    }
    for (const auto& d : data) expect(d.front() == 3.0F && d.back() == 3.0F, "wrong sum");
    expect(last == 3.0F, "wrong sum");
  });
}

TEST_CASE("sends and receives of a group cannot block one another") {
  on_ranks(4, [](Communicator& comm) {
    const std::size_t count = 1 << 20;  // far more than a FIFO holds
    std::vector<std::vector<int>> out, in;
    auto group = comm.group();
    for (int peer = 0; peer < 4; ++peer) {
      out.emplace_back(count, comm.rank() * 10 + peer);
      in.emplace_back(count, -1);
    }
    for (int peer = 0; peer < 4; ++peer) group.send(out[static_cast<std::size_t>(peer)], peer);
    for (int peer = 0; peer < 4; ++peer) group.recv(in[static_cast<std::size_t>(peer)], peer);
    group.end();
    for (int peer = 0; peer < 4; ++peer) {
      const auto& got = in[static_cast<std::size_t>(peer)];
      expect(got.front() == peer * 10 + comm.rank() && got.back() == got.front(), "wrong message");
    }
  });
}

TEST_CASE("split makes communicators of their own, ordered by key") {
  on_ranks(5, [](Communicator& comm) {
    auto half = comm.split(comm.rank() % 2, -comm.rank());
    expect(half.world_size() == (comm.rank() % 2 == 0 ? 3 : 2), "wrong size");
    int highest = comm.rank();
    half.broadcast(std::span(&highest, 1), 0);
    expect(highest == (comm.rank() % 2 == 0 ? 4 : 3), "the largest rank has the smallest key");
    const bool member = comm.rank() < 2;
    auto two = comm.split(member ? 0 : -1, 0);
    expect(static_cast<bool>(two) == member, "a negative color is no member");
  });
}

TEST_CASE("a mismatch reaches every rank and names both ranks and the field") {
  struct Wrong {
    std::string field;
    std::function<void(Communicator&)> call;
  };
  const auto right = [](Communicator& comm) {
    std::vector<float> data(100'000, 1.0F);
    comm.all_reduce(data, ReduceOp::sum);
  };
  const std::vector<Wrong> wrongs{
      {"count",
       [](Communicator& comm) {
         std::vector<float> d(2, 1.0F);
         comm.all_reduce(d, ReduceOp::sum);
       }},
      {"dtype",
       [](Communicator& comm) {
         std::vector<std::int32_t> d(100'000, 1);
         comm.all_reduce(d, ReduceOp::sum);
       }},
      {"reduce_op",
       [](Communicator& comm) {
         std::vector<float> d(100'000, 1.0F);
         comm.all_reduce(d, ReduceOp::max);
       }},
      {"called",
       [](Communicator& comm) {
         std::vector<float> d(100'000, 1.0F);
         comm.broadcast(d, 0);
       }},
      {"called", [](Communicator& comm) { comm.barrier(); }},
  };
  const std::size_t which = GENERATE(0u, 1u, 2u, 3u, 4u);
  const int culprit = GENERATE(0, 2);
  const auto begun = std::chrono::steady_clock::now();
  const auto errors = run_ranks(4, {}, [&](Communicator& comm) {
    if (comm.rank() == culprit) {
      wrongs[which].call(comm);
      comm.barrier();  // whoever returned learns of it at its next call
    } else {
      right(comm);
      comm.barrier();
    }
  });
  CHECK(std::chrono::steady_clock::now() - begun < 5s);
  for (const auto& error : errors) {
    CAPTURE(which, culprit, sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(sentence_of(error).find(wrongs[which].field) != std::string::npos);
    CHECK(sentence_of(error).find(fmt::format("rank {}", culprit)) != std::string::npos);
  }
}

TEST_CASE("a rank that leaves is named by those that wait for it") {
  const auto errors = run_ranks(3, {}, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() != 1) comm.barrier();
  });
  CHECK(code_of(errors[0]) == ErrorCode::peer_lost);
  CHECK(code_of(errors[2]) == ErrorCode::peer_lost);
  CHECK(sentence_of(errors[0]).find("rank 1") != std::string::npos);
}

TEST_CASE("the deadline names who is missing") {
  std::atomic<int> failed{0};
  const auto errors = run_ranks(3, {}, [&](Communicator& comm) {
    comm.set_timeout(300ms);
    if (comm.rank() == 2) {
      while (failed < 2) std::this_thread::yield();
      return;
    }
    try {
      comm.barrier();
    } catch (...) {
      ++failed;
      throw;
    }
  });
  CHECK(code_of(errors[0]) == ErrorCode::timeout);
  CHECK(code_of(errors[1]) == ErrorCode::timeout);
  CHECK(sentence_of(errors[0]).find("for rank 2") != std::string::npos);
  CHECK(sentence_of(errors[0]).find("known to have entered is none") != std::string::npos);
}

TEST_CASE("abort ends every rank's wait, and the communicator stays failed") {
  const auto errors = run_ranks(3, {}, [](Communicator& comm) {
    if (comm.rank() == 0) comm.abort();
    try {
      comm.barrier();
    } catch (const Error&) {
    }
    comm.barrier();
  });
  for (const auto& error : errors) CHECK(code_of(error) == ErrorCode::aborted);
}

TEST_CASE("a communicator goes within a bound, whatever its engine waits for") {
  const auto begun = std::chrono::steady_clock::now();
  std::atomic<bool> gone{false};
  const auto errors = run_ranks(2, {}, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (!gone) std::this_thread::yield();
      comm.barrier();
    } else {
      std::vector<float> data(4);
      comm.async().all_reduce(data, ReduceOp::sum);
      comm = Communicator();
      gone = true;
    }
  });
  CHECK(code_of(errors[1]) == ErrorCode::aborted);
  CHECK(sentence_of(errors[1]).find("rank 0") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - begun < 5s);
}

TEST_CASE("wrong arguments fail the call alone") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(4, 1.0F);
    const auto refused = [&](auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.error_code() == ErrorCode::invalid_argument;
      }
      return false;
    };
    expect(refused([&] { comm.broadcast(data, 2); }), "a root that is no rank");
    expect(refused([&] { comm.all_reduce(data, ReduceOp::bit_and); }), "bit_and of floats");
    expect(refused([&] { comm.all_gather(data, data); }), "a receive buffer that is too short");
    expect(refused([&] { comm.all_to_all(data.data(), data.data(), 2, DataType::f32); }), "all_to_all in place");
    comm.all_reduce(data, ReduceOp::sum);
    expect(data[0] == 2.0F, "the communicator goes on");
  });
}

TEST_CASE("buffers that overlap elsewhere than in place are refused") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(8, 1.0F), other(8);
    const auto dtype = DataType::f32;
    const std::size_t counts[] = {3, 5};
    const auto own = static_cast<std::size_t>(comm.rank());
    std::string said;
    const auto refused = [&](auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        said = error.what();
        return said.find("overlap") != std::string::npos;
      }
      return false;
    };
    float* const at = data.data();
    for (int times = 0; times < 2; ++times) {  // then of shapes that are known
      comm.all_reduce(at, other.data(), 4, dtype, ReduceOp::sum);
      expect(refused([&] { comm.all_reduce(at, at + 3, 4, dtype, ReduceOp::sum); }), "begins before the other ends");
      expect(refused([&] { comm.all_reduce(at + 3, at, 4, dtype, ReduceOp::sum); }), "ends in the other");
      expect(said.ends_with(fmt::format("rank {} must receive where its send buffer begins", own)),
             "where in place is");
      comm.all_reduce(at, at + 4, 4, dtype, ReduceOp::sum);
      comm.all_gather(at, other.data(), 4, dtype);
      expect(refused([&] { comm.all_gather(at + 2, at, 4, dtype); }), "not its own block of the result");
      const auto* const place =
          own == 0 ? "must receive where its send buffer" : "must receive 16 bytes before the start";
      expect(said.find(place) != std::string::npos, "where its block lies");
      comm.reduce_scatter(at, other.data(), 4, dtype, ReduceOp::sum);
      expect(refused([&] { comm.reduce_scatter(at, at + 4 - 4 * own, 4, dtype, ReduceOp::sum); }), "the other's block");
      comm.reduce_scatter(at, at + 4 * own, 4, dtype, ReduceOp::sum);
      comm.all_to_all(at, other.data(), 4, dtype);
      expect(refused([&] { comm.all_to_all(at, at + 2, 4, dtype); }), "all_to_all has no place");
      const std::span<const float> mine(at + (own == 0 ? 0 : 3), counts[own]);
      comm.all_gather_v(mine, std::span(data), counts);
      expect(refused([&] { comm.all_gather_v(std::span<const float>(at + 2, counts[own]), std::span(data), counts); }),
             "all_gather_v, not its own block");
      expect(comm.rank() != 0 || refused([&] { comm.scatter(at, at + 2, 4, dtype, 0); }), "the root's part");
      comm.scatter(at, comm.rank() == 0 ? at : at + 1, 4, dtype, 0);  // others send nothing
    }
  });
}

TEST_CASE("the survivors of an aborted communicator shrink it") {
  on_ranks(3, [](Communicator& comm) {
    if (comm.rank() == 0) comm.abort();
    try {
      comm.barrier();
    } catch (const Error&) {
    }
    auto next = comm.shrink();
    int one = 1;
    next.all_reduce(std::span(&one, 1), ReduceOp::sum);
    expect(one == 3, "all three are alive");
  });
}
