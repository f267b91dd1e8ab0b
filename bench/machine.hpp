// SPDX-License-Identifier: Apache-2.0
// Where and what a run was, as JSON: enough to tell whether two runs may be compared.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace rondo::bench {

nlohmann::json describe_rank(int rank, int node, int local_rank);  // {"rank":0,"pid":…,"host":…,"cpus":[…]}
nlohmann::json describe_run();                                     // host, CPU, kernel, compiler, version, environment

}  // namespace rondo::bench
