// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node and the ranks that share them. Without CUDA: what NVIDIA's driver shows in the file system,
// and CUDA_VISIBLE_DEVICES.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rondo::launcher {

// As CUDA_VISIBLE_DEVICES writes them: numbers, or what `visible` lists. A list ends, as in CUDA, at the first number
// that is no GPU of this node. `root` is "/", or a test's folder; `visible` the variable, empty where it is set so.
std::vector<std::string> visible_gpus(const std::filesystem::path& root, const std::optional<std::string>& visible);
// Of this node and this process's environment.
std::vector<std::string> visible_gpus();

// The NUMA node of a GPU so named; none where the kernel does not say, as of parts of GPUs. By number they are in the
// order of their buses, which is CUDA's where a node's GPUs are of one kind.
std::optional<int> node_of_gpu(const std::filesystem::path& root, const std::string& gpu);

// CUDA_VISIBLE_DEVICES of a rank that gets `per_rank` GPUs; ranks begin again at the first one where GPUs are fewer.
std::string gpus_of_rank(const std::vector<std::string>& gpus, int local_rank, int per_rank);

// Says that ranks share GPUs. Empty: there are none, or enough of them.
std::string sharing_sentence(int ranks, std::size_t gpus, int per_rank);

}  // namespace rondo::launcher
