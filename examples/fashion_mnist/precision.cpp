// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/precision.hpp"

#include <stdexcept>

namespace fashion_mnist {
namespace {

template <class T>
T from_double(double value) {
  return T(static_cast<float>(value));
}
template <>
double from_double<double>(double value) {
  return value;
}
double to_double(double value) { return value; }
template <class T>
double to_double(T value) {
  return static_cast<double>(static_cast<float>(value));
}

template <class T>
void round_to(std::span<float> numbers) {
  for (float& number : numbers) number = static_cast<float>(T(number));
}

template <class Visit>
void visit_type(rondo::DataType dtype, Visit&& visit) {
  if (dtype == rondo::DataType::f64) return visit(double{});
  if (dtype == rondo::DataType::f16) return visit(rondo::float16{});
  if (dtype == rondo::DataType::bf16) return visit(rondo::bfloat16{});
  throw std::invalid_argument("gradients are f64, f16 or bf16 here");
}

}  // namespace

Precision precision_named(const std::string& name) {
  if (name == "f16") return Precision::f16;
  return name == "bf16" ? Precision::bf16 : Precision::full;
}

const char* name_of(Precision precision) {
  if (precision == Precision::full) return "f32";
  return precision == Precision::f16 ? "f16" : "bf16";
}

rondo::DataType gradient_type(Precision precision) {
  if (precision == Precision::full) return rondo::DataType::f64;
  return precision == Precision::f16 ? rondo::DataType::f16 : rondo::DataType::bf16;
}

Network::Rounding rounding(Precision precision) {
  if (precision == Precision::full) return nullptr;
  return precision == Precision::f16 ? round_to<rondo::float16> : round_to<rondo::bfloat16>;
}

void store(std::span<const double> from, void* to, rondo::DataType dtype) {
  visit_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < from.size(); ++i) static_cast<T*>(to)[i] = from_double<T>(from[i]);
  });
}

void fetch(const void* from, std::span<double> to, rondo::DataType dtype) {
  visit_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = to_double(static_cast<const T*>(from)[i]);
  });
}

}  // namespace fashion_mnist
