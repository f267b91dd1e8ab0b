// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/gradients.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trainer/arguments.hpp"
#include "trainer/host_memory.hpp"

namespace rondo::trainer {
namespace {

bool has_gradient(const Parameter& p) { return p.gradient != nullptr && p.count != 0; }

[[noreturn]] void no_scaling(const Parameter& p) {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("the gradient of '{}' is {}; f64, f32, f16 and bf16 can be scaled", p.name, name_of(p.dtype)));
}

template <class Visit>
void for_gradient(const Parameter& p, Visit&& visit) {
  if (!has_gradient(p)) return;
  const auto as = [&](auto* typed) { visit(std::span(typed, p.count)); };
  switch (p.dtype) {
    case DataType::f32:
      return as(static_cast<float*>(p.gradient));
    case DataType::f64:
      return as(static_cast<double*>(p.gradient));
    case DataType::f16:
      return as(static_cast<float16*>(p.gradient));
    case DataType::bf16:
      return as(static_cast<bfloat16*>(p.gradient));
    case DataType::i8:
    case DataType::u8:
    case DataType::i32:
    case DataType::u32:
    case DataType::i64:
    case DataType::u64:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
      break;
  }
  no_scaling(p);
}

// All of them first, so that none is changed where one cannot be.
void check(std::span<const Parameter> parameters) {
  check_parameters("gradients", parameters);
  for (const Parameter& p : parameters) {
    for_gradient(p, [&]<class T>(std::span<T> gradient) {
      if (host_can_reach(gradient.data(), gradient.size_bytes())) return;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the gradient of '{}' is where the CPU cannot reach it; copy it to the host first, or "
                              "scale it on its device",
                              p.name));
    });
  }
}

template <class T>
double number(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}
template <class T>
T stored(double value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

// The sum of squares tells whether anything was not finite; an overflow of doubles takes gradients beyond 1e150.
double scale_all(std::span<const Parameter> parameters, double factor) {
  double squares = 0;
  for (const Parameter& p : parameters) {
    for_gradient(p, [&]<class T>(std::span<T> gradient) {
      for (T& element : gradient) {
        const double before = number(element);
        squares += before * before;
        element = stored<T>(before * factor);
      }
    });
  }
  return squares;
}

}  // namespace

double gradient_norm(std::span<const Parameter> parameters) {
  check(parameters);
  double squares = 0;
  for (const Parameter& p : parameters) {
    for_gradient(p, [&]<class T>(std::span<T> gradient) {
      for (const T element : gradient) squares += number(element) * number(element);
    });
  }
  return std::sqrt(squares);
}

double clip_gradients(std::span<const Parameter> parameters, double maximum) {
  if (!(maximum >= 0)) refuse_argument("clip_gradients", fmt::format("a norm of at most {} cannot be", maximum));
  const double norm = gradient_norm(parameters);
  if (std::isfinite(norm) && norm > maximum) scale_all(parameters, maximum / norm);
  return norm;
}

LossScaler::LossScaler(ScalerOptions options) : options_(options), scale_(options.scale) {
  const auto need = [](bool good, const char* field, double value, const char* what) {
    if (!good) refuse_argument("LossScaler", fmt::format("ScalerOptions::{} is {}: {}", field, value, what));
  };
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  need(positive(options.scale), "scale", options.scale, "it is a positive number");
  need(std::isfinite(options.growth) && options.growth >= 1, "growth", options.growth, "it is a number of at least 1");
  need(options.backoff > 0 && options.backoff <= 1, "backoff", options.backoff, "it is above 0 and at most 1");
  need(options.interval > 0, "interval", 0, "it is at least one step");
  need(positive(options.minimum), "minimum", options.minimum, "it is a positive number");
  need(std::isfinite(options.maximum) && options.maximum >= options.minimum, "maximum", options.maximum,
       "it is a number not below the minimum");
}

void LossScaler::restore(double scale, std::size_t good_steps) {
  if (!std::isfinite(scale) || scale <= 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("LossScaler: a scale of {} cannot be restored", scale));
  }
  scale_ = scale;
  good_steps_ = good_steps;
}

bool LossScaler::unscale(std::span<const Parameter> parameters, Communicator* communicator) {
  check(parameters);
  bool finite = std::isfinite(scale_all(parameters, 1 / scale_));
  if (communicator != nullptr) {
    const std::byte mine{finite};
    const auto all = communicator->all_gather_bytes(std::span(&mine, 1));
    finite = std::all_of(all.begin(), all.end(), [](const auto& one) { return one.front() != std::byte{0}; });
  }
  if (!finite) {
    ++skipped_;
    good_steps_ = 0;
    scale_ = std::max(options_.minimum, scale_ * options_.backoff);
  } else if (++good_steps_ >= options_.interval) {  // more than it, where that was longer before a restore
    good_steps_ = 0;
    scale_ = std::min(options_.maximum, scale_ * options_.growth);
  }
  return finite;
}

}  // namespace rondo::trainer
