// SPDX-License-Identifier: Apache-2.0
// The vectors are spelled out (an extension of GCC and Clang): left to itself GCC 12 vectorises along `inner`, with
// more shuffles than sums.
#include "examples/fashion_mnist/gemm.hpp"

#include <cstring>
#include <vector>

namespace fashion_mnist {
namespace {

using Lanes [[gnu::vector_size(16)]] = float;  // what every x86-64 and ARM core adds at once

constexpr std::size_t kRows = 4;
constexpr std::size_t kVectors = 2;  // with 4 rows: eight sums, half of the registers that x86-64 has

struct Matrix {
  const float* data;
  std::size_t row_stride, inner_stride;
};

// R rows by V vectors of c stay in registers. `b` is packed: row k of the tile's columns starts at b + k * V.
template <std::size_t R, std::size_t V, class Vector>
void tile(float* c, const Matrix& a, const Vector* b, std::size_t inner, std::size_t columns) {
  Vector sum[R][V];
  for (std::size_t r = 0; r < R; ++r) std::memcpy(sum[r], c + r * columns, sizeof sum[r]);
  for (std::size_t k = 0; k < inner; ++k) {
    for (std::size_t r = 0; r < R; ++r) {
      const float factor = a.data[r * a.row_stride + k * a.inner_stride];
      for (std::size_t v = 0; v < V; ++v) sum[r][v] += factor * b[k * V + v];
    }
  }
  for (std::size_t r = 0; r < R; ++r) std::memcpy(c + r * columns, sum[r], sizeof sum[r]);
}

// V vectors' columns of c. Their part of b is copied once, so that the tiles read it in sequence from the nearest
// cache.
template <std::size_t V, class Vector>
void strip(float* c, const Matrix& a, const float* b, std::size_t rows, std::size_t inner, std::size_t columns) {
  std::vector<Vector> packed(inner * V);
  for (std::size_t k = 0; k < inner; ++k) std::memcpy(&packed[k * V], b + k * columns, V * sizeof(Vector));
  std::size_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
    tile<kRows, V>(c + i * columns, {a.data + i * a.row_stride, a.row_stride, a.inner_stride}, packed.data(), inner,
                   columns);
  }
  for (; i < rows; ++i) {
    tile<1, V>(c + i * columns, {a.data + i * a.row_stride, a.row_stride, a.inner_stride}, packed.data(), inner,
               columns);
  }
}

}  // namespace

void multiply_add(float* c, const float* a, std::size_t row_stride, std::size_t inner_stride, const float* b,
                  std::size_t rows, std::size_t inner, std::size_t columns) {
  constexpr std::size_t kColumns = kVectors * sizeof(Lanes) / sizeof(float);
  const Matrix matrix{a, row_stride, inner_stride};
  std::size_t j = 0;
  for (; j + kColumns <= columns; j += kColumns) strip<kVectors, Lanes>(c + j, matrix, b + j, rows, inner, columns);
  for (; j < columns; ++j) strip<1, float>(c + j, matrix, b + j, rows, inner, columns);
}

}  // namespace fashion_mnist
