// SPDX-License-Identifier: Apache-2.0
// The precompiled header: libtorch's headers take a minute, and some of them define CHECK.
#pragma once
#include <torch/torch.h>
#undef CHECK

#include <rondo/torch.hpp>

#include "tests/support/catch.hpp"
