// SPDX-License-Identifier: Apache-2.0
// One rank calls something else than the others, in one field: every rank gets a mismatch that names it and the field.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "tests/comm/stress/memory.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kCount = 20'000;  // of one block; past the sizes at which the small algorithms end
constexpr std::size_t kSmall = 3;

// A call that owns its buffers and counts.
struct Plan {
  Call call;
  std::vector<std::size_t> send_counts, recv_counts;
};

Plan right(Collective collective, int world) {
  Plan plan;
  plan.call = {.collective = collective, .count = kCount, .dtype = DataType::f32};
  const CollectiveRow& row = row_of(collective);
  if (row.rooted) plan.call.root = world - 1;
  const auto n = static_cast<std::size_t>(world);
  if (row.send == Extent::counts) plan.send_counts.assign(n, kCount);
  if (row.recv == Extent::counts) plan.recv_counts.assign(n, kCount);
  if (collective == Collective::barrier) plan.call.count = 0;
  return plan;
}

void run(Communicator& comm, const Plan& plan) {
  const std::size_t bytes = (kCount + 2) * static_cast<std::size_t>(comm.world_size()) * sizeof(double);
  const Memory send(comm, bytes), recv(comm, bytes);
  Call call = plan.call;
  call.send = send.data();
  call.recv = recv.data();
  call.send_counts = plan.send_counts;
  call.recv_counts = plan.recv_counts;
  const auto rank = static_cast<std::size_t>(comm.rank());
  if (!plan.recv_counts.empty() && plan.send_counts.empty()) call.count = plan.recv_counts[rank];
  if (!plan.send_counts.empty() && plan.recv_counts.empty()) call.count = plan.send_counts[rank];
  comm.submit(call);
  comm.synchronize();
}

struct Mistake {
  std::string name, field;
  std::function<bool(Plan&, int culprit)> make;  // false: this collective has no such field
};

std::size_t after(int rank, const Plan& plan) {
  return (static_cast<std::size_t>(rank) + 1) % std::max(plan.send_counts.size(), plan.recv_counts.size());
}

bool set_count(Plan& plan, int culprit, std::size_t count) {
  if (plan.call.count == 0) return false;
  plan.call.count = count;
  if (!plan.send_counts.empty()) plan.send_counts[after(culprit, plan)] = count;
  if (!plan.recv_counts.empty() && plan.send_counts.empty()) plan.recv_counts[after(culprit, plan)] = count;
  return true;
}

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all{
      {"a small count", "count", [](Plan& plan, int culprit) { return set_count(plan, culprit, kSmall); }},
      {"one less", "count", [](Plan& plan, int culprit) { return set_count(plan, culprit, kCount - 1); }},
      {"one more", "count", [](Plan& plan, int culprit) { return set_count(plan, culprit, kCount + 1); }},
      {"no elements", "count", [](Plan& plan, int culprit) { return set_count(plan, culprit, 0); }},
      {"receives less", "count",
       [](Plan& plan, int culprit) {
         if (plan.send_counts.empty() || plan.recv_counts.empty()) return false;
         plan.recv_counts[after(culprit, plan)] = kSmall;
         return true;
       }},
      {"receives nothing", "count",
       [](Plan& plan, int culprit) {
         if (plan.send_counts.empty() || plan.recv_counts.empty()) return false;
         plan.recv_counts[after(culprit, plan)] = 0;
         return true;
       }},
      {"the same sum in other parts", "count",
       [](Plan& plan, int culprit) {
         auto& counts = plan.send_counts.empty() ? plan.recv_counts : plan.send_counts;
         if (counts.size() < 3 || plan.call.collective == Collective::all_to_all_v) return false;
         counts[after(culprit, plan)] -= 1;
         counts[(after(culprit, plan) + 1) % counts.size()] += 1;
         return true;
       }},
      {"another dtype of that size", "dtype",
       [](Plan& plan, int) {
         plan.call.dtype = DataType::i32;
         return plan.call.collective != Collective::barrier;
       }},
      {"a smaller dtype", "dtype",
       [](Plan& plan, int) {
         plan.call.dtype = DataType::u8;
         return plan.call.collective != Collective::barrier;
       }},
      {"another op", "reduce_op",
       [](Plan& plan, int) {
         plan.call.op = ReduceOp::max;
         return row_of(plan.call.collective).reduces;
       }},
      {"another root", "root",
       [](Plan& plan, int) {
         plan.call.root = 0;
         return row_of(plan.call.collective).rooted;
       }},
      {"another collective", "called",
       [](Plan& plan, int) {
         const bool was = plan.call.collective == Collective::broadcast;
         plan = {};
         plan.call = {.collective = was ? Collective::reduce : Collective::broadcast,
                      .count = kCount,
                      .dtype = DataType::f32,
                      .root = 0};
         return true;
       }},
      {"a barrier", "called",
       [](Plan& plan, int) {
         const bool was = plan.call.collective == Collective::barrier;
         plan = {};
         plan.call.collective = Collective::barrier;
         return !was;
       }},
  };
  return all;
}

// Every rank makes its call and then a barrier, where those that had already returned learn of it.
void check_mistake(Kind kind, int world, Collective collective, const Mistake& mistake, int culprit) {
  const Plan good = right(collective, world);
  Plan bad = good;
  if (!mistake.make(bad, culprit)) return;
  Options options;
  options.timeout = 20s;
  // As much as the host's FIFOs hold: two ranks of which one receives nothing meet their deadline where a message is
  // longer, since both are stuck in their sends.
  const Setting slots("RONDO_DEVICE_SLOT_BYTES", kind == Kind::sim ? "65536" : "");
  const auto errors = run_world(kind, world, options, [&](Communicator& comm) {
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    try {
      run(comm, comm.rank() == culprit ? bad : good);
      comm.barrier();
      comm.synchronize();
    } catch (const Error& error) {
      if (std::chrono::steady_clock::now() - start > 2s)
        throw std::runtime_error("it took longer than 2 s: " + std::string(error.what()));
      throw;
    }
  });
  for (int rank = 0; rank < world; ++rank) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    INFO(kind << ", " << name_of(collective) << " among " << world << ", rank " << culprit << " has " << mistake.name);
    INFO("rank " << rank << " says: " << sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(sentence_of(error).find(mistake.field) != std::string::npos);
    CHECK(sentence_of(error).find(fmt::format("rank {}", culprit)) != std::string::npos);
    // Of two, nobody can tell which is wrong; of what each pair has agreed on, nobody else knows.
    const std::vector<int> blamed = culprits_of(error);
    const bool of_pair = row_of(collective).has_own_counts() && mistake.field == "count" && blamed.size() == 2;
    const bool undecided = world == 2 || of_pair;
    CHECK(culprit_of(error) == (undecided ? -1 : culprit));
    CHECK(blamed.size() == (undecided ? 2 : 1));
    CHECK(std::find(blamed.begin(), blamed.end(), culprit) != blamed.end());
  }
}

}  // namespace

TEST_CASE("mismatch: any field of any collective, on any rank") {
  const Kind kind = GENERATE(Kind::local, Kind::tcp, Kind::pairs, Kind::uneven, Kind::woven, Kind::queue,
                             Kind::queue_pairs, Kind::sim);
  const int world = GENERATE(2, 3, 5);
  for (const CollectiveRow& row : collective_table()) {
    if (row.collective == Collective::send || row.collective == Collective::recv) continue;
    int culprit = 0;  // takes turns
    for (const Mistake& mistake : mistakes()) {
      check_mistake(kind, world, row.collective, mistake, culprit);
      culprit = (culprit + 1) % (world - 1);  // the last is the root
    }
  }
}

// Down a tree and up another: nobody has waited for what the culprit did not send. The barrier's own steps differ in
// nothing but what came before; without that some ranks have all they need of it before anybody notices.
TEST_CASE("mismatch: two trees that nobody waits in") {
  const TuningFile trees("links broadcast * * tree\nlinks reduce * * tree\n");
  const auto& all = mistakes();
  const auto other =
      std::find_if(all.begin(), all.end(), [](const Mistake& m) { return m.name == "another collective"; });
  REQUIRE(other != all.end());
  for (int round = 0; round < 20; ++round) check_mistake(Kind::tcp, 5, Collective::broadcast, *other, 3);
}

TEST_CASE("mismatch: the two ends of a message") {
  struct Pair {
    std::string field;
    std::size_t sent, received;
    DataType sends, receives;
  };
  const Pair pair = GENERATE(
      Pair{"count", 100, 101, DataType::f32, DataType::f32}, Pair{"count", 1'000'000, 3, DataType::f32, DataType::f32},
      Pair{"count", 3, 1'000'000, DataType::f32, DataType::f32}, Pair{"count", 0, 5, DataType::f32, DataType::f32},
      Pair{"count", 5, 0, DataType::f32, DataType::f32}, Pair{"dtype", 100, 100, DataType::f32, DataType::i32},
      Pair{"dtype", 100, 100, DataType::f32, DataType::u8});
  const Kind kind = GENERATE(Kind::local, Kind::tcp, Kind::sim);
  Options options;
  options.timeout = 20s;
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_world(kind, 3, options, [&](Communicator& comm) {
    const Memory data(comm, 4'000'000);
    if (comm.rank() == 1) comm.send(data.data(), pair.sent, pair.sends, 2);
    if (comm.rank() == 2) comm.recv(data.data(), pair.received, pair.receives, 1);
    comm.barrier();
    comm.barrier();
    comm.synchronize();
  });
  CHECK(std::chrono::steady_clock::now() - start < 2s);
  for (const auto& error : errors) {
    INFO(kind << ", sends " << pair.sent << ", receives " << pair.received << ": " << sentence_of(error));
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(sentence_of(error).find(pair.field) != std::string::npos);
    CHECK(culprit_of(error) == -1);
    CHECK(culprits_of(error) == std::vector{1, 2});
  }
}
