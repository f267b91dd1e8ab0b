// SPDX-License-Identifier: Apache-2.0
// How fast a call can be on this machine, as far as we know: the least that must be done, timed and checked as every
// library is, and judged by nobody. --transport shm or tcp; --windows 1: in buffers that all ranks reach; --ahead 1:
// where ranks take turns on cores, calls in a row cost least (Cores::give_way).
#include "bound_shared.hpp"
#include "bound_sockets.hpp"
#include "forked.hpp"
#include "measure.hpp"

int main(int argc, char** argv) {
  using namespace rondo::peers;
  const Arguments arguments(argc, argv);
  const int np = static_cast<int>(arguments.number("np", 2));
  const auto limit_s = static_cast<unsigned>(arguments.number("limit-s", 120));
  const bool has_cores = waits_of(arguments.text("waits", "spin")) == Waits::spin;
  const auto measured = [&](Library&& library, int rank) { return Runner(library, arguments, rank, np).run(); };
  if (arguments.needed("transport") == "tcp") {
    const auto ends = BoundSockets::create(np);
    return run_forked(np, limit_s, [&](int rank) { return measured(BoundSockets(ends, rank, np, has_cores), rank); });
  }
  const auto memory = BoundShared::create(np);
  const bool windows = arguments.number("windows", 0) != 0, ahead = arguments.number("ahead", 0) != 0;
  return run_forked(np, limit_s,
                    [&](int rank) { return measured(BoundShared(memory, rank, np, has_cores, windows, ahead), rank); });
}
