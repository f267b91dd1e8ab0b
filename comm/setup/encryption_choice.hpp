// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/base/env.hpp"

namespace rondo {

// RONDO_ENCRYPT=1: all TCP connections of the job are encrypted, which all of it must be told. invalid_argument: it is
// neither 0 nor 1.
inline bool encryption_is_wanted() { return env_number("RONDO_ENCRYPT", 0, 1).value_or(0) == 1; }

}  // namespace rondo
