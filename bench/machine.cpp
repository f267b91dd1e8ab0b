// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.hpp"

#include <fmt/chrono.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "comm/base/env.hpp"

namespace rondo::bench {
namespace {

utsname system_name() {
  utsname name{};
  uname(&name);
  return name;
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> all;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return all;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) all.push_back(cpu);
  }
  return all;
}

// No secret may reach a file that is passed around.
bool is_public(const std::string& name) { return name.find("SECRET") == std::string::npos; }

}  // namespace

nlohmann::json describe_rank(int rank, int node, int local_rank) {
  return {{"rank", rank}, {"pid", getpid()},          {"host", system_name().nodename},
          {"node", node}, {"local_rank", local_rank}, {"cpus", allowed_cpus()}};
}

nlohmann::json describe_run() {
  const utsname name = system_name();
  nlohmann::json environment = nlohmann::json::object();
  for (const std::string& variable : env_names_with_prefix("RONDO_")) {
    if (is_public(variable)) environment[variable] = env(variable).value_or("");
  }
  return {{"started", fmt::format("{:%FT%TZ}",
                                  fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())))},
          {"version", RONDO_BENCH_VERSION},
          {"host", name.nodename},
          {"kernel", fmt::format("{} {} {}", name.sysname, name.release, name.machine)},
          {"cpu", cpu_model()},
          {"cores", std::thread::hardware_concurrency()},
          {"compiler", RONDO_BENCH_COMPILER},
          {"compiler_flags", RONDO_BENCH_FLAGS},
          {"environment", environment}};
}

std::string text_of(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rondo::bench
