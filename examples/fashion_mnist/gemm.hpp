// SPDX-License-Identifier: Apache-2.0
// Products of small row-major matrices in plain C++, blocked so that the compiler keeps a tile of C in registers.
#pragma once
#include <cstddef>

namespace fashion_mnist {

// c[rows][columns] += a[rows][inner] * b[inner][columns]. `a` is read as a[row * row_stride + k * inner_stride], so a
// transposed matrix needs no copy. Every element of c adds its products in order of k: the result does not depend on
// the number of rows.
void multiply_add(float* c, const float* a, std::size_t row_stride, std::size_t inner_stride, const float* b,
                  std::size_t rows, std::size_t inner, std::size_t columns);

}  // namespace fashion_mnist
