// SPDX-License-Identifier: Apache-2.0
// Data-parallel training on a Communicator, without a framework: gradients kept in step, each rank's samples, and what
// a training program needs around them.
#pragma once
#include <rondo/trainer/checkpoint.hpp>
#include <rondo/trainer/drift.hpp>
#include <rondo/trainer/gather.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>
#include <rondo/trainer/gradients.hpp>
#include <rondo/trainer/local_sgd.hpp>
#include <rondo/trainer/power_sgd.hpp>
#include <rondo/trainer/rank_zero_first.hpp>
#include <rondo/trainer/sampler.hpp>
#include <rondo/trainer/sharded_optimizer.hpp>
#include <rondo/trainer/timeline.hpp>
#include <rondo/trainer/values.hpp>
#include <rondo/trainer/wire.hpp>
