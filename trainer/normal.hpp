// SPDX-License-Identifier: Apache-2.0
// PyTorch's normally distributed numbers: those of torch.randn on the CPU after torch.manual_seed. Doubles are the same
// bits, floats up to the last ones, which PyTorch computes with the processor's widest vectors.
#pragma once
#include <cstdint>
#include <optional>
#include <random>
#include <span>

#include <rondo/error.hpp>

namespace rondo::trainer {

class RONDO_API NormalNumbers {
 public:
  explicit NormalNumbers(std::uint32_t seed) : engine_(seed) {}
  void fill(std::span<float> numbers);  // as one call of randn
  void fill(std::span<double> numbers);

 private:
  double uniform_double();
  template <class T>
  T uniform();
  template <class T>
  void fill_all(std::span<T> numbers);
  double one();

  std::mt19937 engine_;
  std::optional<double> left_over_;  // they are made in pairs
};

// numpy.random.RandomState(seed).randint(1000000000), one after the other, as PyTorch's PowerSGD draws its seeds.
class RONDO_API NumpySeeds {
 public:
  explicit NumpySeeds(std::uint32_t seed) : engine_(seed) {}
  std::uint32_t next();

 private:
  std::mt19937 engine_;
};

}  // namespace rondo::trainer
