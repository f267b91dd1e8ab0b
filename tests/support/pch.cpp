// SPDX-License-Identifier: Apache-2.0
#include "tests/support/catch.hpp"
