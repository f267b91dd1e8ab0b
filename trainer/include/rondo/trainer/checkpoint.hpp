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

// Of any type that the format knows or will know; those that no DataType is, are only kept.
struct StoredTensor {
  std::string dtype = "F32";         // the format's name: F32, BOOL, C64
  std::vector<std::size_t> shape{};  // empty: one element, without a dimension
  std::vector<std::byte> bytes{};    // elements in row-major order, little-endian
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

RONDO_API const char* stored_dtype(DataType dtype);  // the format's name

// What a file holds, under the file's own keys. One thread at a time.
class RONDO_API Checkpoint {
 public:
  std::map<std::string, StoredTensor> tensors{};  // by key
  std::map<std::string, std::string> texts{};     // the format's __metadata__

  // Copies its values; key: prefix + name. Error(invalid_argument) naming the tensor when the key is taken or is not
  // UTF-8, when the shape is of another count, and when the CPU cannot read the values, as those of a GPU.
  void put(const Parameter& parameter, const std::string& prefix = "");
  void put(std::span<const Parameter> parameters, const std::string& prefix = "") {
    for (const Parameter& p : parameters) put(p, prefix);
  }
  void put(const std::string& key, StoredTensor tensor);

  // Copies values back, all or none. Error(invalid_argument) naming the tensor that is missing or has another type or
  // shape, or whose values the CPU cannot reach.
  void get(std::span<const Parameter> parameters, const std::string& prefix = "") const;
  void get(const Parameter& parameter, const std::string& prefix = "") const {
    get(std::span<const Parameter>(&parameter, 1), prefix);
  }

  // The tensor of this key, else that which differs by one leading `module.` alone, as PyTorch's
  // DistributedDataParallel leaves it. Null: neither. Error(invalid_argument): one with it and one without.
  const StoredTensor* find(const std::string& key) const;

  // The bytes that Python's safetensors would write. Error(invalid_argument) naming what the format cannot hold.
  std::vector<std::byte> serialize() const;
  // Error(corrupt_message) saying what is wrong with the bytes.
  static Checkpoint parse(std::span<const std::byte> bytes);
};

// Collective: rank 0 writes its checkpoint, the others wait (theirs may be empty). A crash at any moment leaves the old
// or the new file. When it cannot be written, every rank gets the error.
RONDO_API void save_once(Communicator& communicator, const std::string& path, const Checkpoint& checkpoint);

// Each rank reads the file itself: it lies where all ranks reach it. Error(system), Error(corrupt_message).
RONDO_API Checkpoint load(const std::string& path);
// Collective, for files that rank 0 alone can reach: it reads, and every rank gets the same, or the same error.
RONDO_API Checkpoint load(Communicator& communicator, const std::string& path);

}  // namespace rondo::trainer
