// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/checkpoint.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer/arguments.hpp"
#include "trainer/file.hpp"
#include "trainer/host_memory.hpp"
#include "trainer/safetensors.hpp"
#include "trainer/text.hpp"

namespace rondo::trainer {
namespace {

constexpr std::string_view kModule = "module.";

[[noreturn]] void no_tensor(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

std::size_t bytes_of(const Parameter& p) { return p.count * size_of(p.dtype); }

std::vector<std::size_t> shape_of(const Parameter& p) { return p.shape ? *p.shape : std::vector<std::size_t>{p.count}; }

void check_memory(const Parameter& p) {
  if (p.count == 0 || host_can_reach(p.values, bytes_of(p))) return;
  no_tensor(fmt::format(
      "the values of parameter {} are where the CPU cannot reach them; copy them between a GPU and the host first",
      quoted(p.name)));
}

void check_fits(const StoredTensor* tensor, const std::string& key, const Parameter& p, std::size_t known) {
  if (tensor == nullptr) no_tensor(fmt::format("the checkpoint has no tensor {} among its {}", quoted(key), known));
  const auto shape = shape_of(p);
  if (tensor->dtype != stored_dtype(p.dtype) || tensor->shape != shape) {
    no_tensor(fmt::format("tensor {} is {} [{}] in the checkpoint, but {} [{}] in the model", quoted(key),
                          tensor->dtype, fmt::join(tensor->shape, ", "), stored_dtype(p.dtype),
                          fmt::join(shape, ", ")));
  }
  check_memory(p);
}

NextBytes bytes_from(std::span<const std::byte> bytes) {
  return [bytes](std::span<std::byte> to) mutable {
    std::ranges::copy(bytes.first(to.size()), to.begin());
    bytes = bytes.subspan(to.size());
  };
}

// From rank 0 to all, in blocks: a call for each small tensor would be slow, one for the whole would hold it twice.
constexpr std::size_t kBlockBytes = std::size_t{64} << 20;

void send_blocks(Communicator& communicator, std::span<const std::span<const std::byte>> parts) {
  std::vector<std::byte> block;
  const auto send = [&] {
    if (!block.empty()) communicator.all_gather_bytes(block);
    block.clear();
  };
  for (auto part : parts) {
    while (!part.empty()) {
      const std::size_t count = std::min(part.size(), kBlockBytes - block.size());
      block.insert(block.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count));
      part = part.subspan(count);
      if (block.size() == kBlockBytes) send();
    }
  }
  send();
}

NextBytes blocks_of_rank_zero(Communicator& communicator) {
  return [&communicator, block = std::vector<std::byte>(), at = std::size_t{0}](std::span<std::byte> to) mutable {
    while (!to.empty()) {
      if (at == block.size()) {
        block = communicator.all_gather_bytes({}).front();
        at = 0;
      }
      const std::size_t count = std::min(to.size(), block.size() - at);
      std::memcpy(to.data(), block.data() + at, count);
      to = to.subspan(count);
      at += count;
    }
  };
}

}  // namespace

const char* stored_dtype(DataType dtype) {
  switch (dtype) {
    case DataType::i8:
      return "I8";
    case DataType::u8:
      return "U8";
    case DataType::i32:
      return "I32";
    case DataType::u32:
      return "U32";
    case DataType::i64:
      return "I64";
    case DataType::u64:
      return "U64";
    case DataType::f16:
      return "F16";
    case DataType::bf16:
      return "BF16";
    case DataType::f32:
      return "F32";
    case DataType::f64:
      return "F64";
    case DataType::f8e4m3:
      return "F8_E4M3";
    case DataType::f8e5m2:
      return "F8_E5M2";
  }
  no_tensor(fmt::format("there is no element type {}", static_cast<int>(dtype)));
}

void Checkpoint::put(const std::string& key, StoredTensor tensor) {
  check_utf8("the tensor's name", key);
  check_tensor(key, tensor);
  if (!tensors.emplace(key, std::move(tensor)).second) {
    no_tensor(fmt::format("tensor {} is in the checkpoint already; give one of them a prefix", quoted(key)));
  }
}

void Checkpoint::put(const Parameter& p, const std::string& prefix) {
  check_parameter("Checkpoint::put", p);
  StoredTensor tensor{stored_dtype(p.dtype), shape_of(p), {}};
  check_memory(p);
  const auto* const values = static_cast<const std::byte*>(p.values);
  tensor.bytes.assign(values, values + bytes_of(p));
  put(prefix + p.name, std::move(tensor));
}

const StoredTensor* Checkpoint::find(const std::string& key) const {
  const auto at = [&](const std::string& name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  };
  if (const StoredTensor* tensor = at(key)) return tensor;
  const StoredTensor* const with = at(std::string(kModule) + key);
  const StoredTensor* const without = key.starts_with(kModule) ? at(key.substr(kModule.size())) : nullptr;
  if (with != nullptr && without != nullptr) {
    no_tensor(fmt::format("the checkpoint has no tensor {}, but two that differ from it by module.", quoted(key)));
  }
  return with != nullptr ? with : without;
}

void Checkpoint::get(std::span<const Parameter> parameters, const std::string& prefix) const {
  check_parameters("Checkpoint::get", parameters);
  std::vector<const StoredTensor*> found;
  for (const Parameter& p : parameters) {
    const std::string key = prefix + p.name;
    check_fits(found.emplace_back(find(key)), key, p, tensors.size());
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& bytes = found[i]->bytes;
    if (!bytes.empty()) std::memcpy(parameters[i].values, bytes.data(), bytes.size());
  }
}

std::vector<std::byte> Checkpoint::serialize() const {
  const Layout layout = lay_out(*this);
  const auto head = std::as_bytes(std::span(layout.head));
  std::vector<std::byte> bytes(head.begin(), head.end());
  for (const auto part : layout.data) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

Checkpoint Checkpoint::parse(std::span<const std::byte> bytes) {
  return read_checkpoint(bytes.size(), bytes_from(bytes));
}

void save_once(Communicator& communicator, const std::string& path, const Checkpoint& checkpoint) {
  on_rank_zero(communicator, [&] {
    check_path("save_once", path);
    const Layout layout = lay_out(checkpoint);
    std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(layout.head))};
    parts.insert(parts.end(), layout.data.begin(), layout.data.end());
    replace_file(path, parts);
  });
}

Checkpoint load(const std::string& path) {
  check_path("load", path);
  FileReader file(path);
  try {
    return read_checkpoint(file.bytes(), [&](std::span<std::byte> to) { file.read(to); });
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::corrupt_message) throw;
    throw Error(error.error_code(), fmt::format("{}: {}", path, error.what()));
  }
}

Checkpoint load(Communicator& communicator, const std::string& path) {
  Checkpoint mine;
  Layout layout;
  on_rank_zero(communicator, [&] { layout = lay_out(mine = load(path)); });
  const auto head = communicator.all_gather_bytes(std::as_bytes(std::span(layout.head))).front();
  if (communicator.rank() == 0) {
    send_blocks(communicator, layout.data);
    return mine;
  }
  return read_checkpoint(std::string_view(reinterpret_cast<const char*>(head.data()), head.size()),
                         blocks_of_rank_zero(communicator));
}

}  // namespace rondo::trainer
