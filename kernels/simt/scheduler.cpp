// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/scheduler.hpp"

#include "kernels/simt/machine.hpp"

namespace rondo::simt {

Scheduler::Scheduler(const Options& options) : machine_(std::make_unique<Machine>(options)) {}
Scheduler::~Scheduler() = default;

int Scheduler::add_grid(const GridSpec& spec) { return machine_->add_grid(spec); }
Status Scheduler::run() { return machine_->run(); }
bool Scheduler::is_done(int grid) const {
  const Grid& asked = *machine_->grids[static_cast<std::size_t>(grid)];
  if (asked.live != 0) return false;
  happens_after(&asked.end_key);
  return true;
}
std::string Scheduler::report() const { return machine_->report(); }
std::uint64_t Scheduler::steps() const { return machine_->steps; }
std::uint64_t Scheduler::switches() const { return machine_->switches; }

}  // namespace rondo::simt
