// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/gpus.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "comm/base/env.hpp"

namespace rondo::launcher {
namespace {

constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> file_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;  // what cannot be listed is not there
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  return names;
}

// The driver lists every GPU of the machine in /proc; a container may have been given the nodes of a few in /dev.
std::size_t count_gpus(const std::filesystem::path& root) {
  const std::string_view node = "nvidia";
  const auto names = file_names(root / "dev");
  const auto nodes = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return name.starts_with(node) && number(std::string_view(name).substr(node.size()));
  });
  if (nodes > 0) return static_cast<std::size_t>(nodes);
  return file_names(root / "proc/driver/nvidia/gpus").size();
}

// What the driver says of one: "Device Minor: 	 2".
std::string driver_says(const std::filesystem::path& gpu, std::string_view what) {
  std::ifstream file(gpu / "information");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(what)) continue;
    const auto begin = line.find_first_not_of(": \t", what.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::vector<std::string> words(std::string_view list) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    std::string_view word = list.substr(begin, comma - begin);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    all.emplace_back(word);
    begin = comma + 1;
  }
  return all;
}

std::optional<std::string> visible_variable() {
  const auto names = env_names_with_prefix(kVariable);
  if (std::find(names.begin(), names.end(), kVariable) == names.end()) return std::nullopt;
  return env(kVariable).value_or("");
}

}  // namespace

std::vector<std::string> visible_gpus(const std::filesystem::path& root, const std::optional<std::string>& visible) {
  const std::size_t found = count_gpus(root);
  std::vector<std::string> gpus;
  if (!visible) {
    for (std::size_t i = 0; i < found; ++i) gpus.push_back(std::to_string(i));
    return gpus;
  }
  for (const std::string& word : words(*visible)) {
    const auto index = number(word);
    if (index ? *index >= found : !word.starts_with("GPU-") && !word.starts_with("MIG-")) break;
    gpus.push_back(word);
  }
  return gpus;
}

std::vector<std::string> visible_gpus() { return visible_gpus("/", visible_variable()); }

std::optional<int> node_of_gpu(const std::filesystem::path& root, const std::string& gpu) {
  const auto folder = root / "proc/driver/nvidia/gpus";
  auto addresses = file_names(folder);
  std::sort(addresses.begin(), addresses.end());
  const auto index = number(gpu);
  if (index && std::filesystem::exists(root / "dev/nvidiactl"))  // in a container some may be missing
    std::erase_if(addresses, [&](const std::string& address) {
      return !std::filesystem::exists(root / ("dev/nvidia" + driver_says(folder / address, "Device Minor")));
    });
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const bool is_it = index ? *index == i : driver_says(folder / addresses[i], "GPU UUID").starts_with(gpu);
    if (!is_it) continue;
    int node = -1;
    std::ifstream(root / "sys/bus/pci/devices" / addresses[i] / "numa_node") >> node;
    return node < 0 ? std::nullopt : std::optional(node);
  }
  return std::nullopt;
}

std::string gpus_of_rank(const std::vector<std::string>& gpus, int local_rank, int per_rank) {
  std::vector<std::string> mine;
  for (int i = 0; i < per_rank; ++i)
    mine.push_back(gpus[static_cast<std::size_t>(local_rank * per_rank + i) % gpus.size()]);
  return fmt::format("{}", fmt::join(mine, ","));
}

std::string sharing_sentence(int ranks, std::size_t gpus, int per_rank) {
  const auto wanted = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(std::max(per_rank, 1));
  if (gpus == 0 || wanted <= gpus) return "";
  const std::size_t most = (wanted + gpus - 1) / gpus;
  return fmt::format("{} ranks and {} GPU{} on this node: ranks that use a GPU share it, {}{} on each", ranks, gpus,
                     gpus == 1 ? "" : "s", wanted % gpus == 0 ? "" : "up to ", most);
}

}  // namespace rondo::launcher
