// SPDX-License-Identifier: Apache-2.0
// Checkpoints in the safetensors format: tensors by name, and short texts (epoch, best accuracy). In the memory of the
// CPU.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include <rondo/trainer/parameter.hpp>

namespace rondo::trainer {

struct StoredTensor {
  DataType dtype = DataType::f32;
  std::vector<std::size_t> shape{};
  std::vector<std::byte> bytes{};
};

// What a file holds. Keys never carry the prefix `module.` that DistributedDataParallel leaves in PyTorch's.
class RONDO_API Checkpoint {
 public:
  std::map<std::string, StoredTensor> tensors{};
  std::map<std::string, std::string> texts{};  // the format's __metadata__

  void put(const Parameter& parameter, const std::string& prefix = "");  // copies its values; key: prefix + name
  void put(std::span<const Parameter> parameters, const std::string& prefix = "") {
    for (const Parameter& p : parameters) put(p, prefix);
  }
  // Copies values back. Error(invalid_argument) naming the tensor that is missing or has another dtype or shape.
  void get(const Parameter& parameter, const std::string& prefix = "") const;
  void get(std::span<const Parameter> parameters, const std::string& prefix = "") const {
    for (const Parameter& p : parameters) get(p, prefix);
  }

  std::vector<std::byte> serialize() const;
  // One leading `module.` of a key is taken off. Error(corrupt_message) saying what is wrong with the bytes.
  static Checkpoint parse(std::span<const std::byte> bytes);
};

// Collective: rank 0 writes its checkpoint, the others wait (theirs may be empty). A crash at any moment leaves the old
// or the new file. When it cannot be written, every rank gets the error.
RONDO_API void save_once(Communicator& communicator, const std::string& path, const Checkpoint& checkpoint);

// Each rank reads the file itself: it lies where all ranks reach it. Error(system), Error(corrupt_message).
RONDO_API Checkpoint load(const std::string& path);
// Collective, for files that rank 0 alone can reach.
RONDO_API Checkpoint load(Communicator& communicator, const std::string& path);

}  // namespace rondo::trainer
