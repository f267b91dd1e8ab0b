// SPDX-License-Identifier: Apache-2.0
// The hosts of --hosts and --hostfile.
#pragma once
#include <filesystem>
#include <istream>
#include <string>
#include <vector>

namespace rondo::launcher {

struct FarHost {
  std::string login;  // as ssh takes it: "user@name", "name", "fd00::1"
  std::string ranks;  // as --nproc-per-node takes them
  std::string name() const { return login.substr(login.rfind('@') + 1); }
  bool operator==(const FarHost&) const = default;
};

// "a:4,user@b,[fd00::1]:2"; `each` is what a host has that says no number. One that is named again has the ranks of
// both. Error(invalid_argument), a sentence that begins with --hosts, where it is no such list.
std::vector<FarHost> hosts_of_list(const std::string& text, const std::string& each);

// A host a line: "a", "a:4", "a slots=4" as Open MPI has it, or "a 4 …" as Grid Engine does; '#' begins a comment. The
// same host on several lines, as in PBS's file, has the ranks of all.
std::vector<FarHost> hosts_of_file(const std::filesystem::path& path, const std::string& each);
std::vector<FarHost> hosts_in(std::istream& lines, const std::string& file, const std::string& each);  // of that name

bool is_loopback(const std::string& name);  // it means each host itself

}  // namespace rondo::launcher
