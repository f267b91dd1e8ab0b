// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sys/types.h>

#include <string>

namespace rondo::records {

// Shows a job that runs: on a terminal again and again until it ends, elsewhere once. std::runtime_error: one sentence.
void show_job(pid_t process);
std::string job_as_json(pid_t process);

}  // namespace rondo::records
