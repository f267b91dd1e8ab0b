// SPDX-License-Identifier: Apache-2.0
// Products of small row-major matrices in plain C++, blocked so that the compiler keeps a tile of C in registers.
#pragma once
#include <cstddef>

namespace fashion_mnist {

// A float matrix, read as data[row * row_stride + k * inner_stride]: a transposed one needs no copy.
struct Matrix {
  const float* data;
  std::size_t row_stride, inner_stride;
};

// c[rows][columns] += a[rows][inner] * b[inner][columns], summed in the type of c. Every element of c adds its products
// in order of k: the result does not depend on the number of rows.
void multiply_add(float* c, const Matrix& a, const float* b, std::size_t rows, std::size_t inner, std::size_t columns);
void multiply_add(double* c, const Matrix& a, const float* b, std::size_t rows, std::size_t inner, std::size_t columns);

}  // namespace fashion_mnist
