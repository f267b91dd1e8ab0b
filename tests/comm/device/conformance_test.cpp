// SPDX-License-Identifier: Apache-2.0
// Communicators on simulated devices do what those on the CPU do, byte for byte, whatever the algorithm, protocol,
// type, operator, count and place: a covering array of pairs, another one in every run.
#include <fmt/format.h>

#include <chrono>

#include "tests/comm/device/calls.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/support/device.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* kProtocols[] = {"", "simple", "ll", "ll128", "window", "push"};
constexpr std::size_t kCounts[] = {0, 1, 3, 17, 256, 1001, 9973};
constexpr Determinism kDeterminism[] = {Determinism::deterministic, Determinism::reproducible};

Options on(Device device, Determinism determinism = Determinism::deterministic) {
  Options options;
  options.device = device;
  options.determinism = determinism;
  options.timeout = 60s;
  return options;
}

template <class T, std::size_t N>
constexpr int count_of(const T (&)[N]) {
  return static_cast<int>(N);
}

struct How {
  int world;
  const char* algorithm;
  const char* protocol;
  Determinism determinism;
};

std::string describe(const How& setting, const CallCase& c) {
  return fmt::format("{} of {} {} {} root {} in place {} misaligned {}, world {}, algorithm '{}', protocol '{}'{}",
                     name_of(c.collective), c.count, name_of(c.dtype), name_of(c.op.kind()), c.root, c.in_place,
                     c.misalignment, setting.world, setting.algorithm, setting.protocol,
                     setting.determinism == Determinism::reproducible ? ", reproducible" : "");
}

void check_case(const How& setting, const CallCase& c) {
  const std::string what = describe(setting, c);
  INFO(what);
  const auto expected = run_case(setting.world, on(Device::cpu(), Determinism::reproducible), c);
  const Setting algorithm("RONDO_ALGORITHM", setting.algorithm), protocol("RONDO_PROTOCOL", setting.protocol);
  const auto got = run_case(setting.world, on(device_under_test(), setting.determinism), c);
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    const auto differ = std::mismatch(got[rank].begin(), got[rank].end(), expected[rank].begin());
    INFO("rank " << rank << " byte " << differ.first - got[rank].begin() << " of " << got[rank].size());
    CHECK(differ.first == got[rank].end());
  }
}

ReduceOp op_of(int index) {
  const auto kind = static_cast<ReduceOp::Kind>(index);
  return kind == ReduceOp::premultiplied_sum ? ReduceOp::premul_sum(2) : ReduceOp(kind);
}

}  // namespace

TEST_CASE("device communicators do what those on the CPU do") {
  const std::vector<int> sizes{
      count_of(kCollectives), kDataTypeCount,    kReduceOpCount,         8, count_of(kAlgorithms),
      count_of(kProtocols),   count_of(kCounts), count_of(kDeterminism), 2, 2};
  for (const auto& v : PairwiseCases(sizes, rotating_seed()).all()) {
    const auto at = [&](std::size_t i) { return static_cast<std::size_t>(v[i]); };
    CallCase c{.collective = kCollectives[at(0)],
               .dtype = static_cast<DataType>(v[1]),
               .op = op_of(v[2]),
               .count = kCounts[at(6)],
               .root = v[2] % (v[3] + 1),
               .in_place = v[8] != 0,
               .misalignment = at(9)};
    if (!is_supported(c.dtype, c.op.kind())) c.op = ReduceOp::max;
    if (!may_be_in_place(c.collective)) c.in_place = false;
    check_case({v[3] + 1, kAlgorithms[at(4)], kProtocols[at(5)], kDeterminism[at(7)]}, c);
  }
}

TEST_CASE("reproducible sums have the bits of the CPU's, by any algorithm and protocol, of any size") {
  const std::vector<int> sizes{3, 4, 2, 7, count_of(kAlgorithms), count_of(kProtocols), count_of(kCounts)};
  constexpr Collective kReducing[] = {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter};
  constexpr DataType kFloating[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16};
  for (const auto& v : PairwiseCases(sizes, rotating_seed()).all()) {
    const auto at = [&](std::size_t i) { return static_cast<std::size_t>(v[i]); };
    const CallCase c{.collective = kReducing[at(0)],
                     .dtype = kFloating[at(1)],
                     .op = v[2] == 0 ? ReduceOp::sum : ReduceOp::average,
                     .count = kCounts[at(6)],
                     .exact = false};
    check_case({v[3] + 2, kAlgorithms[at(4)], kProtocols[at(5)], Determinism::reproducible}, c);
  }
}
