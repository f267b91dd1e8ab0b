// SPDX-License-Identifier: Apache-2.0
// What a caller can get wrong, by the public header that takes it: each is refused where it enters, by one sentence
// that names it, and costs nothing but that call.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <rondo/trainer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/worlds.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace rondo::trainer;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMinusOne = std::numeric_limits<std::size_t>::max();
const auto kNoType = static_cast<DataType>(77);

struct Fixture {
  Communicator& comm;
  std::vector<float> values = std::vector<float>(4, 1), gradient = std::vector<float>(4, 2);
  Parameter good() { return {"w", values.data(), gradient.data(), 4, DataType::f32, {}}; }
  Parameter with(const std::function<void(Parameter&)>& change) {
    Parameter p = good();
    change(p);
    return p;
  }
  std::vector<Parameter> list(const std::function<void(Parameter&)>& change) { return {with(change)}; }
};

struct Row {
  const char* what;   // was tried
  const char* named;  // by the sentence
  std::function<void(Fixture&)> call;
};

// Every way in for a tensor of the caller's.
struct Entry {
  const char* name;
  std::function<void(Fixture&, std::vector<Parameter>)> call;
};
const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"GradientSynchronizer",
       [](Fixture& f, std::vector<Parameter> p) { GradientSynchronizer(f.comm, std::move(p)); }},
      {"its buffers",
       [](Fixture& f, std::vector<Parameter> p) {
         GradientSynchronizer(f.comm, {f.good()}, {.buffers = std::move(p)});
       }},
      {"ShardedOptimizer", [](Fixture& f, std::vector<Parameter> p) { ShardedOptimizer(f.comm, std::move(p), 1); }},
      {"DriftCheck::check", [](Fixture& f, const std::vector<Parameter>& p) { DriftCheck(f.comm, 1).check(p); }},
      {"hash_values", [](Fixture&, const std::vector<Parameter>& p) { hash_values(p.front()); }},
      {"ModelAverager::after_step",
       [](Fixture& f, const std::vector<Parameter>& p) { ModelAverager(f.comm, {}).after_step(p); }},
      {"gradient_norm", [](Fixture&, const std::vector<Parameter>& p) { gradient_norm(p); }},
      {"clip_gradients", [](Fixture&, const std::vector<Parameter>& p) { clip_gradients(p, 1); }},
      {"LossScaler::unscale", [](Fixture&, const std::vector<Parameter>& p) { LossScaler().unscale(p); }},
      {"Checkpoint::put", [](Fixture&, const std::vector<Parameter>& p) { Checkpoint().put(p); }},
      {"Checkpoint::get", [](Fixture&, const std::vector<Parameter>& p) { Checkpoint().get(p); }},
  };
  return all;
}

ScalerOptions scaler(const std::function<void(ScalerOptions&)>& change) {
  ScalerOptions options;
  change(options);
  return options;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      // gradient_synchronizer.hpp
      {"no gradient", "'w' has no gradient array",
       [](Fixture& f) { GradientSynchronizer(f.comm, f.list([](Parameter& p) { p.gradient = nullptr; })); }},
      {"a type without averages of gradients", "'w' is i32",
       [](Fixture& f) { GradientSynchronizer(f.comm, f.list([](Parameter& p) { p.dtype = DataType::i32; })); }},
      {"buckets of nothing", "a bucket must hold at least 8 bytes",
       [](Fixture& f) { GradientSynchronizer(f.comm, {f.good()}, {.bucket_bytes = 0}); }},
      {"a parameter that is not there", "there is no parameter 9",
       [](Fixture& f) { static_cast<void>(GradientSynchronizer(f.comm, {f.good()}).gradient<float>(9)); }},
      {"ready() of it", "there is no parameter 9",
       [](Fixture& f) { GradientSynchronizer(f.comm, {f.good()}).ready(9); }},
      {"a buffer that is not there", "buffer 0 of 0",
       [](Fixture& f) { GradientSynchronizer(f.comm, {f.good()}).move_buffer(0, f.values.data()); }},
      // gradients.hpp
      {"a negative norm", "a norm of at most -1", [](Fixture& f) { clip_gradients({{f.good()}}, -1); }},
      {"a norm of NaN", "a norm of at most nan", [](Fixture& f) { clip_gradients({{f.good()}}, kNaN); }},
      {"a scale of 0", "ScalerOptions::scale is 0", [](Fixture&) { LossScaler({.scale = 0}); }},
      {"a negative scale", "ScalerOptions::scale is -2", [](Fixture&) { LossScaler({.scale = -2}); }},
      {"no scale", "ScalerOptions::scale is nan", [](Fixture&) { LossScaler({.scale = kNaN}); }},
      {"an endless scale", "ScalerOptions::scale is inf", [](Fixture&) { LossScaler({.scale = kInfinity}); }},
      {"growth that shrinks", "ScalerOptions::growth is 0.5", [](Fixture&) { LossScaler({.growth = 0.5}); }},
      {"growth of NaN", "ScalerOptions::growth is nan", [](Fixture&) { LossScaler({.growth = kNaN}); }},
      {"backoff that grows", "ScalerOptions::backoff is 2", [](Fixture&) { LossScaler({.backoff = 2}); }},
      {"backoff to nothing", "ScalerOptions::backoff is 0", [](Fixture&) { LossScaler({.backoff = 0}); }},
      {"backoff of NaN", "ScalerOptions::backoff is nan", [](Fixture&) { LossScaler({.backoff = kNaN}); }},
      {"no interval", "ScalerOptions::interval is 0", [](Fixture&) { LossScaler({.interval = 0}); }},
      {"a minimum of 0", "ScalerOptions::minimum is 0", [](Fixture&) { LossScaler({.minimum = 0}); }},
      {"a maximum below the minimum", "ScalerOptions::maximum is 2",
       [](Fixture&) { LossScaler(scaler([](ScalerOptions& o) { o.minimum = 4, o.maximum = 2; })); }},
      {"a maximum of NaN", "ScalerOptions::maximum is nan", [](Fixture&) { LossScaler({.maximum = kNaN}); }},
      {"a scale restored from NaN", "a scale of nan", [](Fixture&) { LossScaler().restore(kNaN, 0); }},
      // sharded_optimizer.hpp
      {"no values", "the values of 'w' are not in the memory of the CPU",
       [](Fixture& f) { ShardedOptimizer(f.comm, f.list([](Parameter& p) { p.values = nullptr; }), 1); }},
      {"a negative number of states", "states of each element",
       [](Fixture& f) { ShardedOptimizer(f.comm, {f.good()}, kMinusOne); }},
      {"no function", "there is no function that updates a shard",
       [](Fixture& f) { ShardedOptimizer(f.comm, {f.good()}, 1).step(nullptr); }},
      {"a state that is not there", "there is no state 1",
       [](Fixture& f) { ShardedOptimizer(f.comm, {f.good()}, 1).gather_states(1); }},
      {"a state to fill that is not there", "there is no state 1",
       [](Fixture& f) { ShardedOptimizer(f.comm, {f.good()}, 1).scatter_states(1, {}); }},
      {"the state of nobody", "the state of 'w' is missing",
       [](Fixture& f) { ShardedOptimizer(f.comm, {f.good()}, 1).scatter_states(0, {}); }},
      // drift.hpp
      {"a check every 0 steps", "every 0 steps is never", [](Fixture& f) { DriftCheck(f.comm, 0); }},
      // local_sgd.hpp, power_sgd.hpp
      {"an average every 0 steps", "the period is 0 steps", [](Fixture& f) { ModelAverager(f.comm, {.period = 0}); }},
      {"factors of nothing", "matrix_approximation_rank is 0",
       [](Fixture&) { power_sgd({.matrix_approximation_rank = 0}); }},
      {"a rate of NaN", "min_compression_rate is nan", [](Fixture&) { power_sgd({.min_compression_rate = kNaN}); }},
      {"an epsilon below", "orthogonalization_epsilon is -1",
       [](Fixture&) { power_sgd({.orthogonalization_epsilon = -1}); }},
      // sampler.hpp
      {"a rank of another world", "rank 2 is outside a world of 2", [](Fixture&) { DistributedSampler(10, 2, 2); }},
      {"a negative rank", "rank -1", [](Fixture&) { DistributedSampler(10, -1, 2); }},
      {"a world of none", "a world of 0", [](Fixture&) { DistributedSampler(10, 0, 0); }},
      {"a negative number of samples", "is the number negative?",
       [](Fixture&) { DistributedSampler(kMinusOne, 0, 2); }},
      {"a permutation of them", "is the number negative?", [](Fixture&) { random_permutation(kMinusOne, 0); }},
      {"a tail that is none", "the tail is 7",
       [](Fixture&) { DistributedSampler(10, 0, 2, {.tail = static_cast<Tail>(7)}); }},
      {"dealing to it", "the tail is 7",
       [](Fixture&) {
         deal(std::vector<std::size_t>{1, 2}, 0, 2, static_cast<Tail>(7));
       }},
      // checkpoint.hpp
      {"values that are null", "'w' are where the CPU cannot reach them",
       [](Fixture& f) { Checkpoint().put(f.with([](Parameter& p) { p.values = nullptr; })); }},
      {"no file to save to", "save_once: the path is empty", [](Fixture& f) { save_once(f.comm, "", {}); }},
      {"half a name", "save_once: the path '/tmp/a\\u0000b' has a zero byte",
       [](Fixture& f) { save_once(f.comm, std::string("/tmp/a\0b", 8), {}); }},
      {"no file to load", "load: the path is empty", [](Fixture&) { trainer::load(""); }},
      {"no file for all", "load: the path is empty", [](Fixture& f) { trainer::load(f.comm, ""); }},
      {"a stored type that is none", "there is no element type 77", [](Fixture&) { stored_dtype(kNoType); }},
      {"a tensor of other bytes", "'t' has 3 bytes",
       [](Fixture&) { Checkpoint().put("t", {.shape = {2}, .bytes = std::vector<std::byte>(3)}); }},
      // timeline.hpp
      {"no file for the timeline", "Timeline::write: the path is empty",
       [](Fixture& f) { Timeline().write(f.comm, ""); }},
      {"a timeline of no rank", "there is no rank -1", [](Fixture&) { Timeline().json(-1); }},
      // gather.hpp, values.hpp
      {"an order that is none", "the order is 9",
       [](Fixture& f) { gather_all(f.comm, std::vector<int>{1}, static_cast<GatherOrder>(9)); }},
      {"a root outside", "there is no rank 2", [](Fixture& f) { broadcast_value(f.comm, 1, 2); }},
      {"a root below", "there is no rank -1", [](Fixture& f) { gather_value(f.comm, 1, -1); }},
      {"a root for parts", "there is no rank 5", [](Fixture& f) { scatter_value(f.comm, std::vector<int>{1}, 5); }},
      {"a peer outside", "there is no rank 2", [](Fixture& f) { send_value(f.comm, 1, 2); }},
      {"a peer to hear", "there is no rank -3", [](Fixture& f) { recv_value<int>(f.comm, -3); }},
      // wire.hpp
      {"a wire that is none", "unknown dtype is no wire type", [](Fixture&) { compress_to(kNoType); }},
      {"a wire too narrow", "f8e4m3 is no wire type", [](Fixture&) { compress_to(DataType::f8e4m3); }},
  };
  return all;
}

void check_refused(Fixture& f, const std::string& what, const std::string& named, const std::function<void()>& call) {
  const auto error = thrown_by(call);
  expect(code_of(error) == ErrorCode::invalid_argument && contains(sentence_of(error), named),
         what + ": expected '" + named + "', got '" + sentence_of(error) + "'");
  std::vector<float> one(1, 1);
  f.comm.all_reduce(one, ReduceOp::sum);
  expect(one[0] == 2, "the sum after: " + what);
}

}  // namespace

TEST_CASE("the trainer refuses what cannot be, on the rank that asks for it") {
  const auto errors = each_rank(2, [](Communicator& comm) {
    Fixture f{comm};
    for (const Row& row : rows()) check_refused(f, row.what, row.named, [&] { row.call(f); });
  });
  CHECK(errors == no_errors(2));
}

TEST_CASE("a tensor is looked at wherever it enters") {
  const std::pair<const char*, std::function<void(Parameter&)>> bad[] = {
      {"has no name", [](Parameter& p) { p.name.clear(); }},
      {"the dtype of 'w' is 77", [](Parameter& p) { p.dtype = kNoType; }},
      {"of 'w' are beyond all memory", [](Parameter& p) { p.count = kMinusOne; }},
      {"not those of shape [3]", [](Parameter& p) { p.shape = {3}; }},
      {"not those of shape [18446744073709551615, 18446744073709551615]",
       [](Parameter& p) {
         p.shape = {kMinusOne, kMinusOne};
       }},
  };
  const auto errors = each_rank(2, [&](Communicator& comm) {
    Fixture f{comm};
    for (const Entry& entry : entries()) {
      for (const auto& [named, change] : bad)
        check_refused(f, entry.name, named, [&, &spoil = change] { entry.call(f, f.list(spoil)); });
    }
  });
  CHECK(errors == no_errors(2));
}
