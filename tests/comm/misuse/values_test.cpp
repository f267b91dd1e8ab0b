// SPDX-License-Identifier: Apache-2.0
// What enters beside the verbs' calls: pointers with a count, values of enums, sizes, empty handles. By public header.
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/communicator.hpp>
#include <rondo/device.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

struct Row {
  const char* what;
  const char* named;  // by the sentence
  std::function<void(Communicator&)> call;
};

// One of a user's, as small as it may be.
class PlainStore final : public Store {
 public:
  void set(std::string_view, std::span<const std::byte>) override {}
  Bytes get(std::string_view, Deadline) override { return {}; }
  std::optional<Bytes> try_get(std::string_view) override { return Bytes(); }
  std::int64_t add(std::string_view, std::int64_t amount) override { return amount; }
  bool compare_and_set(std::string_view, std::optional<Bytes>, std::span<const std::byte>) override { return true; }
  bool erase(std::string_view) override { return true; }
};

const std::vector<Row>& rows() {
  static const Device sim = Device::sim();
  static char byte = 0;
  static const std::vector<Row> all = {
      // collective.hpp
      {"a row of no collective", "collective 99 is none of ours",
       [](Communicator&) { static_cast<void>(row_of(static_cast<Collective>(99))); }},
      {"a row of the next one", "collective 15 is none of ours",
       [](Communicator&) { static_cast<void>(row_of(static_cast<Collective>(15))); }},
      // device.hpp
      {"memory beyond counting", "are beyond all memory", [](Communicator&) { DeviceArray<double>(sim, kMost / 4); }},
      {"memory of the CPU", "the CPU is not a CUDA device", [](Communicator&) { DeviceMemory(Device::cpu(), 8); }},
      {"a copy from null", "copy_from: host of 8 bytes is null",
       [](Communicator&) { DeviceMemory(sim, 8).copy_from(nullptr, 8); }},
      {"a copy to null", "copy_to: host of 8 bytes is null",
       [](Communicator&) { DeviceMemory(sim, 8).copy_to(nullptr, 8); }},
      {"a copy past the end", "8 bytes at 1 do not fit into 8",
       [](Communicator&) { DeviceMemory(sim, 8).copy_from(&sim, 8, 1); }},
      {"a copy past all ends", "are not in 8 bytes",
       [](Communicator&) { DeviceMemory(sim, 8).copy_to(&byte, 1, kMost); }},
      {"a copy into nothing", "1 bytes at 0 do not fit into 0",
       [](Communicator&) { DeviceMemory().copy_from(&byte, 1); }},
      {"copy_on to null", "copy_on: to of 1 bytes is null",
       [](Communicator&) { copy_on(sim, nullptr, nullptr, &byte, 1); }},
      {"copy_on from null", "copy_on: from of 1 bytes is null",
       [](Communicator&) { copy_on(sim, nullptr, &byte, nullptr, 1); }},
      {"fill_on null", "fill_on: to of 1 bytes is null", [](Communicator&) { fill_on(sim, nullptr, nullptr, 0, 1); }},
      {"copy_on of the CPU", "the CPU is not a CUDA device",
       [](Communicator&) { copy_on(Device::cpu(), nullptr, &byte, &byte, 1); }},
      {"a stream of nothing", "DeviceStream::synchronize: it was made without a device",
       [](Communicator&) { DeviceStream().synchronize(); }},
      {"an event of nothing", "DeviceEvent::record: it was made without a device",
       [](Communicator&) { DeviceEvent().record(nullptr); }},
      {"the time since nothing", "the earlier one: it was made without a device",
       [](Communicator&) { static_cast<void>(DeviceEvent(sim).seconds_since(DeviceEvent())); }},
      // communicator.hpp
      {"bytes that are null", "all_gather_bytes: the value of 3 bytes is null",
       [](Communicator& comm) { comm.all_gather_bytes(std::span(static_cast<const std::byte*>(nullptr), 3)); }},
      {"a window beyond all memory", "allocate: the count is beyond all memory",
       [](Communicator& comm) { comm.allocate<double>(kMost / 4); }},
      {"a group that was moved away", "this group was moved elsewhere",
       [](Communicator& comm) {
         auto group = comm.group();
         const auto other = std::move(group);
         group.barrier();  // NOLINT(bugprone-use-after-move)
       }},
      {"the end of it", "this group was moved elsewhere",
       [](Communicator& comm) {
         auto group = comm.group();
         const auto other = std::move(group);
         group.end();  // NOLINT(bugprone-use-after-move)
       }},
      {"an empty communicator", "this communicator is empty", [](Communicator&) { Communicator().barrier(); }},
      {"the group of one", "this communicator is empty", [](Communicator&) { Communicator().group(); }},
      {"a world of nobody", "a world of 0 ranks", [](Communicator&) { Communicator::local(0); }},
      {"a world of fewer", "a world of -1 ranks", [](Communicator&) { Communicator::local(-1); }},
      {"a world of too many", "a world of 2147483647 ranks",
       [](Communicator&) { Communicator::local(std::numeric_limits<int>::max()); }},
      // store.hpp
      {"an index outside of an exchange", "exchange place: index 2 is not one of 2",
       [](Communicator&) { PlainStore().exchange("place", 2, 2, {}, {}); }},
      {"an index below", "exchange place: index -1",
       [](Communicator&) { PlainStore().exchange("place", -1, 2, {}, {}); }},
      {"a survivor that is no member", "survivors world: index 1 is not one of 1",
       [](Communicator&) {
         const int members[] = {0};
         PlainStore().survivors("world", 1, members, {});
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("values, pointers and handles are refused where they enter, and cost that call alone") {
  on_ranks(2, [](Communicator& comm) {
    for (const Row& row : rows()) {
      const auto error = thrown_by([&] { row.call(comm); });
      expect(code_of(error) == ErrorCode::invalid_argument && contains(sentence_of(error), row.named),
             std::string(row.what) + ": expected '" + row.named + "', got '" + sentence_of(error) + "'");
      std::vector<int> one(1, 1);
      comm.all_reduce(one, ReduceOp::sum);
      expect(one[0] == 2, std::string("the sum after: ") + row.what);
    }
  });
}

TEST_CASE("names of what is none say so, and its size is refused") {
  const auto no_type = static_cast<DataType>(GENERATE(12, 77, 255));
  CHECK(name_of(no_type) == "unknown dtype");
  CHECK_THROWS_AS(size_of(no_type), std::invalid_argument);
  CHECK(sentence_of(thrown_by([&] { static_cast<void>(size_of(no_type)); })).find("is none of ours") !=
        std::string::npos);
  CHECK(name_of(static_cast<Collective>(15)) == "unknown collective");
  CHECK(name_of(static_cast<Collective>(255)) == "unknown collective");
  CHECK(name_of(static_cast<ReduceOp::Kind>(9)) == "unknown reduce_op");
  CHECK(error_category().message(99) == "unknown error");
}

TEST_CASE("no bytes from nowhere are none") {
  copy_on(Device::sim(), nullptr, nullptr, nullptr, 0);
  fill_on(Device::sim(), nullptr, nullptr, 0, 0);
  DeviceMemory memory(Device::sim(), 8);
  memory.copy_from(nullptr, 0);
  memory.copy_to(nullptr, 0);
  on_ranks(2, [](Communicator& comm) { expect(comm.all_gather_bytes({})[1].empty(), "bytes from nowhere"); });
}
