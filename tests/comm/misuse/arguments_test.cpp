// SPDX-License-Identifier: Apache-2.0
// Every argument is looked at where it enters: a bad one fails that call alone, by a sentence that names it.
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/device.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr std::size_t kRoom = 64;  // elements of each buffer

struct Bad {
  std::string named;  // by the sentence
  Call call;
};

std::vector<Bad> bad_calls(void* send, void* recv) {
  static const std::size_t one_count[] = {4}, many[] = {std::numeric_limits<std::size_t>::max(), 2};
  const Call good{.collective = Collective::all_reduce, .send = send, .recv = recv, .count = 4, .dtype = DataType::f32};
  std::vector<Bad> all;
  const auto add = [&](const std::string& named, auto change) {
    Call call = good;
    change(call);
    all.push_back({named, call});
  };
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  add("collective 99", [](Call& c) { c.collective = static_cast<Collective>(99); });
  add("collective 15", [](Call& c) { c.collective = static_cast<Collective>(15); });
  add("dtype 77", [](Call& c) { c.dtype = static_cast<DataType>(77); });
  add("dtype 12", [](Call& c) { c.dtype = static_cast<DataType>(12); });
  add("reduce_op 9", [](Call& c) { c.op = static_cast<ReduceOp::Kind>(9); });
  add("reduce_op 255", [](Call& c) { c.op = static_cast<ReduceOp::Kind>(255); });
  add("bit_and of f32", [](Call& c) { c.op = ReduceOp::bit_and; });
  for (const Collective rooted : {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
    for (const int root : {-1, 2, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
      add(fmt::format("root {}", root), [&](Call& c) {
        c.collective = rooted;
        c.root = root;
      });
    }
  }
  for (const Collective message : {Collective::send, Collective::recv}) {
    for (const int peer : {7, -1, -2}) {
      add(peer == 7    ? "peer 7"
          : peer == -1 ? "peer -1"
                       : "peer -2",
          [&](Call& c) {
            c.collective = message;
            c.root = peer;
          });
    }
  }
  for (const Collective any :
       {Collective::all_reduce, Collective::all_gather, Collective::all_to_all, Collective::reduce_scatter}) {
    for (const std::size_t count : {kMost, kMost / 4 + 1, kMost / 2}) {
      add("the count is beyond all memory", [&](Call& c) {
        c.collective = any;
        c.count = count;
      });
    }
  }
  add("the send buffer is null", [](Call& c) { c.send = nullptr; });
  add("the receive buffer is null", [](Call& c) { c.recv = nullptr; });
  add("1 send counts for 2 ranks", [](Call& c) {
    c.collective = Collective::all_to_all_v;
    c.send_counts = one_count;
  });
  add("1 receive counts for 2 ranks", [](Call& c) {
    c.collective = Collective::all_gather_v;
    c.recv_counts = one_count;
  });
  add("the count is beyond all memory", [](Call& c) {
    c.collective = Collective::all_gather_v;
    c.recv_counts = many;
  });
  return all;
}

void check_refused(const std::exception_ptr& error, const std::string& named, const std::string& how) {
  expect(code_of(error) == ErrorCode::invalid_argument && contains(sentence_of(error), named),
         fmt::format("{}: expected '{}', got '{}'", how, named, sentence_of(error)));
}

// The communicator is as good as before.
void check_usable(Communicator& comm, float* data) {
  const std::vector<float> ones(4, 1);
  std::vector<float> sum(4);
  if (comm.device().kind == Device::Kind::cpu) {
    comm.all_reduce(std::span(ones), std::span(sum), ReduceOp::sum);
  } else {
    copy_on(comm.device(), nullptr, data, ones.data(), sizeof(float) * 4);
    comm.all_reduce(std::span(data, 4), ReduceOp::sum);
    comm.synchronize();
    copy_on(comm.device(), nullptr, sum.data(), data, sizeof(float) * 4);
    comm.synchronize();
  }
  expect(sum == std::vector<float>(4, 2), "the sum after a bad call is wrong");
}

void try_all(Communicator& comm, std::vector<Bad> calls, float* data) {
  for (const Bad& bad : calls) {
    check_refused(thrown_by([&] { comm.submit(bad.call); }), bad.named, "blocking");
    check_refused(thrown_by([&] { comm.async().submit(bad.call).wait(); }), bad.named, "async");
    check_refused(thrown_by([&] {
                    auto group = comm.group();
                    group.submit(bad.call);
                    group.end();
                  }),
                  bad.named, "group");
    check_usable(comm, data);
  }
}

}  // namespace

TEST_CASE("a bad argument of a call on the CPU fails it alone") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> send(kRoom), recv(kRoom);
    try_all(comm, bad_calls(send.data(), recv.data()), send.data());
    const std::vector<std::size_t> counts{2, 2};
    check_refused(
        thrown_by([&] { comm.all_gather_v(std::span<const float>(send).first(2), std::span(recv).first(3), counts); }),
        "recv has 3 elements, expected 4", "a span too short");
    check_refused(thrown_by([&] {
                    comm.all_to_all_v(std::span<const float>(send).first(3), counts, std::span(recv).first(4), counts);
                  }),
                  "send has 3 elements, expected 4", "a span too short");
    check_usable(comm, send.data());
  });
}

TEST_CASE("a bad argument of a call on a device fails it alone, and so does a count past the end of its memory") {
  on_ranks(2,
           [](Communicator& comm) {
             DeviceArray<float> send(comm.device(), kRoom), recv(comm.device(), kRoom);
             auto calls = bad_calls(send.data(), recv.data());
             for (const std::size_t count : {kRoom + 1, 2 * kRoom, std::size_t{1} << 40}) {
               calls.push_back({"past the end of its memory",
                                {.collective = Collective::all_reduce,
                                 .send = recv.data(),
                                 .recv = recv.data(),
                                 .count = count,
                                 .dtype = DataType::f32}});
             }
             calls.push_back({"the send buffer of 16 bytes goes past the end of its memory, where 4 bytes are left",
                              {.collective = Collective::all_reduce,
                               .send = send.data() + kRoom - 1,
                               .recv = send.data() + kRoom - 1,
                               .count = 4,
                               .dtype = DataType::f32}});
             try_all(comm, std::move(calls), recv.data());
             check_refused(thrown_by([&] { comm.register_memory(nullptr, 8); }), "register_memory: the data", "null");
           },
           {.device = Device::sim()});
}

TEST_CASE("options that are none are refused by the name of the field") {
  using namespace std::chrono_literals;
  const std::pair<const char*, Options> table[] = {
      {"Options::device.kind is 7", {.device = {.kind = static_cast<Device::Kind>(7)}}},
      {"Options::device.index is -2", {.device = Device::sim(-2)}},
      {"Options::determinism is 3", {.determinism = static_cast<Determinism>(3)}},
      {"Options::timeout of 0 ms", {.timeout = 0ms}},
      {"Options::join_timeout of -1 ms", {.join_timeout = -1ms}},
  };
  for (const auto& [named, options] : table)
    check_refused(thrown_by([&, &given = options] { Communicator::local(2, given); }), named, "local");
  check_refused(thrown_by([] { DeviceMemory({.kind = static_cast<Device::Kind>(7)}, 8); }), "Device::kind is 7",
                "memory");
  check_refused(thrown_by([] { device_count(static_cast<Device::Kind>(7)); }), "Device::kind is 7", "count");
  CHECK_FALSE(is_supported(DataType::f32, static_cast<ReduceOp::Kind>(9)));
  CHECK_FALSE(is_supported(static_cast<DataType>(12), ReduceOp::sum));
}
