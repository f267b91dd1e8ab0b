// SPDX-License-Identifier: Apache-2.0
// What all ranks of a communicator have in common, once each has seen the others' cards.
#pragma once
#include <span>

#include <rondo/communicator.hpp>

#include "comm/setup/card.hpp"
#include "comm/setup/config.hpp"
#include "comm/transport/transport.hpp"

namespace rondo::comm {

// Takes over what rank 0's card says, with a warning where this rank was told otherwise. Throws mismatch where ranks
// asked for devices of different kinds, or some encrypt and others do not.
void agree(std::span<const Card> cards, int rank, const Transports& known, Config& config, Options& options);

}  // namespace rondo::comm
