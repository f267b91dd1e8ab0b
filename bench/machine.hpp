// SPDX-License-Identifier: Apache-2.0
// Where and what a run was, as JSON: enough to tell whether two runs may be compared.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rondo::bench {

nlohmann::json describe_rank(int rank, int node, int local_rank);  // {"rank":0,"pid":…,"host":…,"cpus":[…]}
nlohmann::json describe_run();                                     // host, CPU, kernel, compiler, version, environment

// What is not UTF-8, as the name of a host or a file may be, becomes U+FFFD. indent -1: on one line.
std::string text_of(const nlohmann::json& value, int indent = -1);

}  // namespace rondo::bench
