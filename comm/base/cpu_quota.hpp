// SPDX-License-Identifier: Apache-2.0
// How much processor time the control groups (cgroups, versions 1 and 2) leave to this process.
#pragma once
#include <filesystem>

namespace rondo {

// The least quota of this process's group and of those around it, in cores; infinity: none. Files are looked for under
// `root`.
double cpu_quota(const std::filesystem::path& root = "/");

}  // namespace rondo
