// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/scores.hpp"

#include <vector>

#include "tests/support/catch.hpp"

using fashion_mnist::macro_f1;
using fashion_mnist::Prediction;

TEST_CASE("F1 is the mean over the classes that occur") {
  // Class 0: precision 1, recall 1/2. Class 1: precision 1/2, recall 1. Class 2 is predicted and never there.
  const std::vector<Prediction> all = {{0, 0}, {0, 1}, {1, 1}, {0, 0}, {0, 2}};
  CHECK(macro_f1(all) == Approx((2.0 / 3 + 2.0 / 3 + 0) / 3));
  CHECK(macro_f1(std::vector<Prediction>{{4, 4}, {7, 7}}) == 1);
  CHECK(macro_f1(std::vector<Prediction>{{4, 7}}) == 0);
  CHECK(macro_f1(std::vector<Prediction>{}) == 0);
}

TEST_CASE("F1 of the whole is not the mean of the parts' scores") {
  const std::vector<Prediction> left = {{0, 0}, {0, 0}}, right = {{1, 0}, {1, 1}};
  std::vector<Prediction> whole = left;
  whole.insert(whole.end(), right.begin(), right.end());
  CHECK(macro_f1(whole) != Approx((macro_f1(left) + macro_f1(right)) / 2));
}
