// SPDX-License-Identifier: Apache-2.0
// Catch2 2 or 3, whichever is installed; the precompiled header of every test.
#pragma once
#ifdef RONDO_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
