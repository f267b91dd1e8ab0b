// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/checkpoint.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/file.hpp"

namespace rondo::trainer {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxHeader = 100'000'000;  // what the format's own reader allows
constexpr std::size_t kAlignment = 8;            // of the data, by spaces behind the header

// The format's names.
constexpr std::array<std::pair<DataType, const char*>, kDataTypeCount> kNames = {{{DataType::i8, "I8"},
                                                                                  {DataType::u8, "U8"},
                                                                                  {DataType::i32, "I32"},
                                                                                  {DataType::u32, "U32"},
                                                                                  {DataType::i64, "I64"},
                                                                                  {DataType::u64, "U64"},
                                                                                  {DataType::f16, "F16"},
                                                                                  {DataType::bf16, "BF16"},
                                                                                  {DataType::f32, "F32"},
                                                                                  {DataType::f64, "F64"},
                                                                                  {DataType::f8e4m3, "F8_E4M3"},
                                                                                  {DataType::f8e5m2, "F8_E5M2"}}};

const char* format_name(DataType dtype) {
  for (const auto& [type, name] : kNames) {
    if (type == dtype) return name;
  }
  return "?";
}

[[noreturn]] void corrupt(const std::string& why) {
  throw Error(ErrorCode::corrupt_message, "not a safetensors file: " + why);
}

DataType type_named(const std::string& wanted, const std::string& tensor) {
  for (const auto& [type, name] : kNames) {
    if (wanted == name) return type;
  }
  corrupt(fmt::format("tensor '{}' is of type {}, which is not known", tensor, wanted));
}

std::vector<std::size_t> shape_of(const Parameter& p) {
  return p.shape.empty() ? std::vector<std::size_t>{p.count} : p.shape;
}

std::string without_module(const std::string& key) {
  constexpr std::string_view kPrefix = "module.";
  return key.starts_with(kPrefix) ? key.substr(kPrefix.size()) : key;
}

// Sizes come from a file: a product that does not fit is larger than any file.
std::size_t bytes_of(const std::vector<std::size_t>& shape, DataType dtype, const std::string& tensor) {
  std::size_t bytes = size_of(dtype);
  for (const std::size_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) corrupt(fmt::format("tensor '{}' is too large", tensor));
  }
  return bytes;
}

StoredTensor parse_tensor(const std::string& key, const Json& row, std::span<const std::byte> data) {
  StoredTensor tensor;
  tensor.dtype = type_named(row.at("dtype").get<std::string>(), key);
  tensor.shape = row.at("shape").get<std::vector<std::size_t>>();
  const auto ends = row.at("data_offsets").get<std::array<std::size_t, 2>>();
  if (ends[0] > ends[1] || ends[1] > data.size() || ends[1] - ends[0] != bytes_of(tensor.shape, tensor.dtype, key))
    corrupt(fmt::format("tensor '{}' does not lie where the header says", key));
  const auto bytes = data.subspan(ends[0], ends[1] - ends[0]);
  tensor.bytes.assign(bytes.begin(), bytes.end());
  return tensor;
}

}  // namespace

void Checkpoint::put(const Parameter& p, const std::string& prefix) {
  const auto* const values = static_cast<const std::byte*>(p.values);
  tensors[without_module(prefix + p.name)] = {p.dtype, shape_of(p), {values, values + p.count * size_of(p.dtype)}};
}

void Checkpoint::get(const Parameter& p, const std::string& prefix) const {
  const std::string key = without_module(prefix + p.name);
  const auto found = tensors.find(key);
  if (found == tensors.end()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the checkpoint has no tensor '{}' among its {}", key, tensors.size()));
  }
  const StoredTensor& tensor = found->second;
  if (tensor.dtype != p.dtype || tensor.shape != shape_of(p)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("tensor '{}' is {} [{}] in the checkpoint, but {} [{}] in the model", key, name_of(tensor.dtype),
                    fmt::join(tensor.shape, ", "), name_of(p.dtype), fmt::join(shape_of(p), ", ")));
  }
  if (!tensor.bytes.empty()) std::memcpy(p.values, tensor.bytes.data(), tensor.bytes.size());
}

std::vector<std::byte> Checkpoint::serialize() const {
  Json header = Json::object();
  if (!texts.empty()) header["__metadata__"] = texts;
  std::size_t end = 0;
  for (const auto& [key, tensor] : tensors) {
    const std::size_t begin = std::exchange(end, end + tensor.bytes.size());
    header[key] = {{"dtype", format_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof(std::uint64_t) + text.size() + end);
  const std::uint64_t length = text.size();
  const auto add = [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
  add(std::as_bytes(std::span(&length, 1)));
  add(std::as_bytes(std::span(text)));
  for (const auto& [key, tensor] : tensors) add(tensor.bytes);
  return bytes;
}

Checkpoint Checkpoint::parse(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) corrupt("it is shorter than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof length);
  bytes = bytes.subspan(sizeof length);
  if (length > bytes.size() || length > kMaxHeader) corrupt("its header is longer than the file, or than 100 MB");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), length);
  Checkpoint checkpoint;
  try {
    const Json header = Json::parse(text);
    for (const auto& [key, row] : header.items()) {
      if (key == "__metadata__") {
        checkpoint.texts = row.get<std::map<std::string, std::string>>();
      } else {
        checkpoint.tensors[without_module(key)] = parse_tensor(key, row, bytes.subspan(length));
      }
    }
  } catch (const Json::exception& error) {
    corrupt(error.what());
  }
  return checkpoint;
}

void save_once(Communicator& communicator, const std::string& path, const Checkpoint& checkpoint) {
  on_rank_zero(communicator, [&] { replace_file(path, checkpoint.serialize()); });
}

Checkpoint load(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return Checkpoint::parse(std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::corrupt_message) throw;
    throw Error(error.error_code(), fmt::format("{}: {}", path, error.what()));
  }
}

Checkpoint load(Communicator& communicator, const std::string& path) {
  std::string text;
  on_rank_zero(communicator, [&] { text = read_file(path); });
  const auto bytes = communicator.all_gather_bytes(std::as_bytes(std::span(text))).front();
  return Checkpoint::parse(bytes);
}

}  // namespace rondo::trainer
