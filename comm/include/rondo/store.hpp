// SPDX-License-Identifier: Apache-2.0
// A key-value store that the ranks of a job share while they meet. Bring your own by deriving; the rendezvous client
// is one. Every call may be made from any thread, blocks at most until its deadline, and throws rondo::Error.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/export.hpp>

namespace rondo {

// See above. The rendezvous server takes keys of 1 to 256 bytes and values of at most 64 KiB.
class RONDO_API Store {
 public:
  using Bytes = std::vector<std::byte>;                    // a value
  using Deadline = std::chrono::steady_clock::time_point;  // time_point::max(): for ever

  virtual ~Store();
  // Writes, over what is there.
  virtual void set(std::string_view key, std::span<const std::byte> value) = 0;
  // Waits for the key. timeout error at the deadline.
  virtual Bytes get(std::string_view key, Deadline deadline) = 0;
  // Does not wait; nullopt: no such key.
  virtual std::optional<Bytes> try_get(std::string_view key) = 0;
  // Adds to a decimal counter that starts at 0; returns the sum.
  virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
  // Writes `desired` if the key holds `expected` (nullopt: is absent); returns whether it did.
  virtual bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                               std::span<const std::byte> desired) = 0;
  // Whether the key was there.
  virtual bool erase(std::string_view key) = 0;

  // Everybody contributes one value and gets all of them, in order of index: one call per participant and name.
  // At the deadline the error lists the indices that are missing. The default uses set and get.
  virtual std::vector<Bytes> exchange(std::string_view name, int index, int participants,
                                      std::span<const std::byte> value, Deadline deadline);

  // Who is left of the communicator `name` (unique: it carries the generation). Called by every survivor; members[i]
  // is the rank in the job of the communicator's rank i, and `index` is the caller. Returns the surviving indices in
  // order, the same everywhere. A store that knows who is connected answers as soon as everybody alive has asked; the
  // default waits for all members, and at the deadline takes those that have asked.
  virtual std::vector<int> survivors(std::string_view name, int index, std::span<const int> members, Deadline deadline);
  // Says to a store that knows who is connected: these indices will not ask for the survivors of `name`, as they are
  // cut off or stopped. One that asks all the same before there is an answer has survived. Called from another thread
  // while survivors() waits; does nothing by default.
  virtual void missing(std::string_view name, std::span<const int> indices);
};

}  // namespace rondo
