// SPDX-License-Identifier: Apache-2.0
// What ranks must agree on before a collective moves a byte. Travels with every step on every link and stands in each
// rank's history, where a waiting rank compares it.
#pragma once
#include <cstdint>
#include <string>

#include <rondo/collective.hpp>

namespace rondo::comm {

struct Signature {
  std::uint64_t sequence = 0;  // of the communicator's collectives from 1; of messages, with the pair's of their tag
  std::uint64_t count = 0;
  Collective collective{};
  DataType dtype{};
  ReduceOp::Kind op{};
  std::uint8_t on_device = 0;  // kernels count by themselves
  std::int32_t root = -1;      // of a message: its tag
  std::uint64_t shape = 0;     // hash of the counts of a _v form
  std::uint64_t past = 0;      // steps over links: key of all collectives before this one (Board::key)

  friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(sizeof(Signature) == 40);

// Of a collective, without its number.
Signature signature_of(const Call& call);
// Of a device's message, the same at both ends.
Signature signature_of_message(const Call& call);

// Of a message, at either end. Says so of any bits, unlike the table's row.
inline bool is_message(const Signature& s) { return s.collective == Collective::send; }

// All but its number, its count and its shape, in one word.
inline std::uint64_t kind_of(const Signature& s) {
  return static_cast<std::uint64_t>(s.collective) | static_cast<std::uint64_t>(s.dtype) << 8 |
         static_cast<std::uint64_t>(s.op) << 16 | static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.root)) << 32;
}

// What ranks must agree on in one word, its number left out: hardly ever the same for two signatures that differ.
std::uint64_t hash_of(const Signature& signature);

// "all_reduce #7 of 1000 f32, sum"
std::string describe(const Signature& signature);
// One sentence that names the first field that differs: "rank 0 and rank 2 disagree on the dtype of all_reduce #7:
// f32 against i32". Empty when they agree.
std::string compare(int rank, const Signature& mine, int peer, const Signature& theirs);

}  // namespace rondo::comm
