// SPDX-License-Identifier: Apache-2.0
// explore KERNEL SEEDS [FIRST]: so many schedules, from a new seed each time unless told; the first that goes wrong
// ends it, with the line that replays it. explore KERNEL SEEDS FIRST --find: for a mutant, which must go wrong.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/kernels/device/explore/scenario.hpp"
#include "tests/kernels/tsan_reports.hpp"

namespace {

using rondo::test::KernelUnderTest;
using rondo::test::kKernelCount;
using rondo::test::kKernelNames;

int usage() {
  std::fputs("usage: explore simple|ll|ll128|window|window_sum|push|history SEEDS [FIRST [--find]]\n", stderr);
  return 2;
}

std::string wrong_with(KernelUnderTest kernel, std::uint64_t seed) {
  const unsigned before = rondo::test::tsan_reports();
  const std::string wrong = rondo::test::explore(kernel, seed);
  if (!wrong.empty()) return wrong;
  return rondo::test::tsan_reports() == before ? "" : "ThreadSanitizer reported (with names: TSAN_OPTIONS=symbolize=1)";
}

// A mutant may well use an address that nobody has written.
void found_by_crash(int) {
  const char text[] = "it crashed\n";
  std::_Exit(write(STDOUT_FILENO, text, sizeof text - 1) < 0 ? 1 : 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) return usage();
  int kernel = 0;
  while (kernel < kKernelCount && std::strcmp(kKernelNames[kernel], argv[1]) != 0) ++kernel;
  if (kernel == kKernelCount) return usage();
  const bool find = argc == 5;
  if (find) std::signal(SIGSEGV, found_by_crash);
  const std::uint64_t seeds = std::strtoull(argv[2], nullptr, 10);
  const std::uint64_t first = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : std::random_device{}();
  std::printf("%s: %llu seeds from %llu on\n", argv[1], static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(first));
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const std::string wrong = wrong_with(static_cast<KernelUnderTest>(kernel), seed);
    if (wrong.empty()) continue;
    std::printf("%s\nreplay: %s %s 1 %llu\n", wrong.c_str(), argv[0], argv[1], static_cast<unsigned long long>(seed));
    return find ? 0 : 1;
  }
  if (find) std::puts("none of these schedules shows the planted bug");
  return find ? 1 : 0;
}
