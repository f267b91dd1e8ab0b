// SPDX-License-Identifier: Apache-2.0
// One rank's run through all sizes, dtypes, operators and roots. Rank 0 hands each row to a Report.
#pragma once
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "bench/cases.hpp"
#include "bench/flags.hpp"
#include "bench/site.hpp"
#include "bench/statistics.hpp"
#include "bench/surroundings.hpp"

namespace rondo::bench {

struct Measurement {
  std::vector<double> samples_us;
  Statistics time_us;
  double algbw_gbps = 0, busbw_gbps = 0;       // by the median; 1e9 bytes a second
  double share_of_bound = 0;                   // of what copies in the shared memory would allow; 0: not known
  std::string algorithm{};                     // by its name in the library's table
  std::string kernel{};                        // on devices: the one that ran it
  int sets = 1;                                // of buffers that were used in turn
  std::vector<std::uint64_t> wrong_by_rank{};  // empty: not checked
  std::uint64_t wrong() const { return std::accumulate(wrong_by_rank.begin(), wrong_by_rank.end(), std::uint64_t{0}); }
};

struct Row {
  Cell cell;
  Measurement out_of_place;
  std::optional<Measurement> in_place{};
};

class Report {
 public:
  virtual ~Report() = default;
  virtual void begin(const Surroundings& surroundings) = 0;
  virtual void row(const Row& row) = 0;
  virtual void end() = 0;
};

// Collective. Returns the wrong values that this rank found; with them the run has failed. Without a report, silent.
// UsageError for flags that this world cannot serve.
std::uint64_t sweep(Communicator& communicator, const Case& what, const Flags& flags, Report* report);

}  // namespace rondo::bench
