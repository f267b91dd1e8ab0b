// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process.
#pragma once
#include <functional>

#include <rondo/communicator.hpp>

namespace rondo::tune {

// Each rank runs `body`; throws the first failure that is no echo of another's.
void run_threads(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace rondo::tune
