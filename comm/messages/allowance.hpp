// SPDX-License-Identifier: Apache-2.0
// How much a rank sends to another before it knows that it is wanted.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rondo::comm {

// With what its sender does not know to be wanted a peer's memory holds at most so much of it; each message costs that
// much beside its bytes.
inline constexpr std::size_t kUnaskedBytes = 1 << 20, kUnaskedCost = 128;
// Of what a rank has handed on it tells with its next message, or once its peer may soon have to wait.
inline constexpr std::size_t kToldWithMessage = kUnaskedBytes / 4, kToldAlone = kUnaskedBytes / 4 * 3;
// Over a socket it takes a round trip to ask for a message that was announced.
inline constexpr std::size_t kWholeOnSocket = 256 << 10;
inline constexpr int kStepsPerTurn = 16;  // of one link at once; others get their turn in between

inline std::size_t cost_of(std::uint64_t bytes) { return static_cast<std::size_t>(bytes) + kUnaskedCost; }

}  // namespace rondo::comm
