// SPDX-License-Identifier: Apache-2.0
// The arithmetic of PowerSGD on row-major matrices M of rows x columns. Factors are `rank` vectors, one behind the
// other: P of rows elements each, Q of columns elements each. Sums have a fixed order, so that equal ranks get equal
// bits.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace rondo::trainer::low_rank {

struct Shape {
  std::size_t rows = 0, columns = 0, rank = 0;
};

// Lanes, so that the compiler may add side by side.
template <class Sum, class T>
Sum dot(const T* a, const T* b, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  std::array<Sum, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<Sum>(a[i + lane]) * static_cast<Sum>(b[i + lane]);
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
  Sum sum = 0;
  for (const Sum lane : lanes) sum += lane;
  return sum;
}

// to += factor * from
template <class T>
void add(T factor, const T* from, T* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// Gram and Schmidt's, twice, because once leaves vectors that are nearly parallel far from orthogonal. A vector of
// zeros, as that of a gradient which nobody has, stays one.
template <class T>
void orthogonalize(std::span<T> vectors, std::size_t length, double epsilon) {
  for (std::size_t at = 0; at < vectors.size(); at += length) {
    T* const own = vectors.data() + at;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t before = 0; before < at; before += length) {
        const T* const other = vectors.data() + before;
        add(static_cast<T>(-dot<double>(other, own, length)), other, own, length);
      }
    }
    const double norm = std::sqrt(dot<double>(own, own, length)) + epsilon;
    if (norm == 0) continue;
    for (std::size_t i = 0; i < length; ++i) own[i] = static_cast<T>(static_cast<double>(own[i]) / norm);
  }
}

// P = M Q
template <class T>
void left_factor(const T* matrix, const Shape& shape, const T* q, T* p) {
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t r = 0; r < shape.rank; ++r)
      p[r * shape.rows + row] = dot<T>(matrix + row * shape.columns, q + r * shape.columns, shape.columns);
  }
}

// Q = M^T P
template <class T>
void right_factor(const T* matrix, const Shape& shape, const T* p, T* q) {
  std::fill_n(q, shape.rank * shape.columns, T(0));
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t r = 0; r < shape.rank; ++r)
      add(p[r * shape.rows + row], matrix + row * shape.columns, q + r * shape.columns, shape.columns);
  }
}

// M = P Q^T
template <class T>
void product(const T* p, const T* q, const Shape& shape, T* matrix) {
  std::fill_n(matrix, shape.rows * shape.columns, T(0));
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t r = 0; r < shape.rank; ++r)
      add(p[r * shape.rows + row], q + r * shape.columns, matrix + row * shape.columns, shape.columns);
  }
}

}  // namespace rondo::trainer::low_rank
