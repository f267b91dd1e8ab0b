// SPDX-License-Identifier: Apache-2.0
// Data-parallel training on a Communicator, without a framework: gradients kept in step, and each rank's samples.
#pragma once
#include <rondo/trainer/gradient_synchronizer.hpp>
#include <rondo/trainer/sampler.hpp>
