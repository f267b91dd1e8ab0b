// SPDX-License-Identifier: Apache-2.0
// The formats that the network can compute in and gradients can travel in.
#pragma once
#include <span>
#include <string>

#include <rondo/dtype.hpp>

#include "examples/fashion_mnist/network.hpp"

namespace fashion_mnist {

enum class Precision { full, f16, bf16 };

Precision precision_named(const std::string& name);  // "f32", "f16", "bf16"
const char* name_of(Precision precision);
rondo::DataType gradient_type(Precision precision);  // full: f64, as sums over images are
Network::Rounding rounding(Precision precision);

// Between the host's doubles and memory of `dtype`, which is one of gradient_type's.
void store(std::span<const double> from, void* to, rondo::DataType dtype);
void fetch(const void* from, std::span<double> to, rondo::DataType dtype);

}  // namespace fashion_mnist
