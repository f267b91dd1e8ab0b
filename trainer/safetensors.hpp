// SPDX-License-Identifier: Apache-2.0
// The safetensors format, as its own library writes and reads it: the length of a header in JSON, the header, and the
// tensors' bytes without a gap, those of wide types first.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/trainer/checkpoint.hpp>

namespace rondo::trainer {

struct Layout {
  std::string head;                              // the length and the header
  std::vector<std::span<const std::byte>> data;  // of the checkpoint, in the order of the file
};

// Error(invalid_argument) naming what the format cannot hold, before anything is written.
Layout lay_out(const Checkpoint& checkpoint);

// Fills what it is given with the next bytes of the file.
using NextBytes = std::function<void(std::span<std::byte>)>;

// Nothing is allocated for a tensor before the header fits a file of `bytes`. Error(corrupt_message).
Checkpoint read_checkpoint(std::uint64_t bytes, const NextBytes& next);
// From the head that lay_out wrote, without the file: the tensors' bytes are the only thing that `next` gives.
Checkpoint read_checkpoint(std::string_view head, const NextBytes& next);

// Error(invalid_argument) when the tensor's bytes are not those of its shape and type.
void check_tensor(const std::string& key, const StoredTensor& tensor);

}  // namespace rondo::trainer
