// SPDX-License-Identifier: Apache-2.0
// The vectors are spelled out (an extension of GCC and Clang): left to itself GCC 12 vectorises along `inner`, with
// more shuffles than sums.
#include "examples/fashion_mnist/gemm.hpp"

#include <cstring>
#include <vector>

namespace fashion_mnist {
namespace {

// Eight columns wide, whatever the type; the sums take half of the sixteen registers that x86-64 has.
constexpr std::size_t kColumns = 8;
template <class Real>
constexpr std::size_t kRows = 16 / sizeof(Real);

template <class Real>
struct Vector;
template <>
struct Vector<float> {
  using Type [[gnu::vector_size(16)]] = float;
};
template <>
struct Vector<double> {
  using Type [[gnu::vector_size(16)]] = double;
};

// R rows by V vectors of c stay in registers. `b` is packed: row k of the tile's columns starts at b + k * V.
template <std::size_t R, std::size_t V, class Real, class Lanes>
void tile(Real* c, const Matrix& a, const Lanes* b, std::size_t inner, std::size_t columns) {
  Lanes sum[R][V];
  for (std::size_t r = 0; r < R; ++r) std::memcpy(sum[r], c + r * columns, sizeof sum[r]);
  for (std::size_t k = 0; k < inner; ++k) {
    for (std::size_t r = 0; r < R; ++r) {
      const auto factor = static_cast<Real>(a.data[r * a.row_stride + k * a.inner_stride]);
      for (std::size_t v = 0; v < V; ++v) sum[r][v] += factor * b[k * V + v];
    }
  }
  for (std::size_t r = 0; r < R; ++r) std::memcpy(c + r * columns, sum[r], sizeof sum[r]);
}

// V vectors' columns of c. Their part of b is copied once, so that the tiles read it in sequence from the nearest
// cache.
template <std::size_t V, class Lanes, class Real>
void strip(Real* c, const Matrix& a, const float* b, std::size_t rows, std::size_t inner, std::size_t columns) {
  constexpr std::size_t kWidth = V * sizeof(Lanes) / sizeof(Real);
  std::vector<Lanes> packed(inner * V);
  for (std::size_t k = 0; k < inner; ++k) {
    Real row[kWidth];
    for (std::size_t j = 0; j < kWidth; ++j) row[j] = static_cast<Real>(b[k * columns + j]);
    std::memcpy(&packed[k * V], row, sizeof row);
  }
  const auto below = [&](std::size_t i) { return Matrix{a.data + i * a.row_stride, a.row_stride, a.inner_stride}; };
  std::size_t i = 0;
  for (; i + kRows<Real> <= rows; i += kRows<Real>) {
    tile<kRows<Real>, V>(c + i * columns, below(i), packed.data(), inner, columns);
  }
  for (; i < rows; ++i) tile<1, V>(c + i * columns, below(i), packed.data(), inner, columns);
}

template <class Real>
void multiply_add_in(Real* c, const Matrix& a, const float* b, std::size_t rows, std::size_t inner,
                     std::size_t columns) {
  using Lanes = typename Vector<Real>::Type;
  constexpr std::size_t kVectors = kColumns * sizeof(Real) / sizeof(Lanes);
  std::size_t j = 0;
  for (; j + kColumns <= columns; j += kColumns) strip<kVectors, Lanes>(c + j, a, b + j, rows, inner, columns);
  for (; j < columns; ++j) strip<1, Real>(c + j, a, b + j, rows, inner, columns);
}

}  // namespace

void multiply_add(float* c, const Matrix& a, const float* b, std::size_t rows, std::size_t inner, std::size_t columns) {
  multiply_add_in(c, a, b, rows, inner, columns);
}
void multiply_add(double* c, const Matrix& a, const float* b, std::size_t rows, std::size_t inner,
                  std::size_t columns) {
  multiply_add_in(c, a, b, rows, inner, columns);
}

}  // namespace fashion_mnist
