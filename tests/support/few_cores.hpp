// SPDX-License-Identifier: Apache-2.0
// Few cores, however many the machine has: ranks that outnumber theirs take other ways. Only a machine with one core
// has fewer than asked for.
#pragma once
#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace rondo::test {

// That this thread may run on.
inline std::vector<std::uint32_t> allowed_cores() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw std::runtime_error("no affinity mask");
  std::vector<std::uint32_t> cores;
  for (std::uint32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

// From now on this thread does, and those and the processes that it starts. False: it may not.
inline bool run_on(const std::vector<std::uint32_t>& cores) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  for (const std::uint32_t core : cores) CPU_SET(core, &allowed);
  return ::sched_setaffinity(0, sizeof allowed, &allowed) == 0;
}

// For the life of this object this thread, and those and the processes that it starts, have at most so many cores.
class FewCores {
 public:
  static constexpr std::size_t kAll = CPU_SETSIZE;

  explicit FewCores(std::size_t most) : before_(allowed_cores()) {
    std::vector<std::uint32_t> few = before_;
    if (few.size() > most) few.resize(most);
    run_on(few);
  }
  ~FewCores() { run_on(before_); }
  FewCores(const FewCores&) = delete;

 private:
  std::vector<std::uint32_t> before_;
};

}  // namespace rondo::test
