// SPDX-License-Identifier: Apache-2.0
// A program whose threads wait for each other again and again, as those of numerical libraries do.
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <vector>

int main() {
  constexpr int kRounds = 2000, kCount = 20000;
  std::vector<double> values(kCount, 1.0);
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < kRounds; ++round) {
#pragma omp parallel for
    for (int i = 0; i < kCount; ++i)
      values[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(i)] * 0.5 + 1;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("threads %d seconds %.3f last %.3f\n", omp_get_max_threads(), seconds, values.back());
}
