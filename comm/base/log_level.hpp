// SPDX-License-Identifier: Apache-2.0
// Whether RONDO_LOG names a level, apart from log.hpp: one file asks.
#pragma once

namespace rondo::log {

void check_level();  // Error(invalid_argument) where it names none; who does not ask logs as if it were unset

}  // namespace rondo::log
