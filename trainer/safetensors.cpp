// SPDX-License-Identifier: Apache-2.0
#include "trainer/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "trainer/text.hpp"

namespace rondo::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

using Json = nlohmann::json;

constexpr std::size_t kMaxHeader = 100'000'000;  // what the format's own reader allows
constexpr std::size_t kAlignment = 8;            // of the data, by spaces behind the header
constexpr const char* kTexts = "__metadata__";

// In the format's own order, that of alignment: wider types come first in a file, so all of them are aligned.
struct StoredType {
  const char* name;
  std::size_t bits;
};
constexpr std::array<StoredType, 22> kTypes = {
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};

// Past the table: a type of a later version. It is only kept, and its size is what the file says.
std::size_t type_index(const std::string& name) {
  return static_cast<std::size_t>(
      std::ranges::find(kTypes, name, [](const StoredType& t) { return std::string(t.name); }) - kTypes.begin());
}

[[noreturn]] void corrupt(const std::string& why) {
  throw Error(ErrorCode::corrupt_message, "not a safetensors file: " + why);
}
[[noreturn]] void no_file(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "this cannot be a safetensors file: " + why);
}

// Empty: they are right. Sizes come from a file: a product that does not fit is larger than any file.
std::string fault_of(const std::string& key, const StoredTensor& tensor, std::size_t bytes) {
  const std::size_t type = type_index(tensor.dtype);
  if (type == kTypes.size()) return {};
  std::size_t bits = 1;
  for (const std::size_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bits, extent, &bits)) return fmt::format("tensor {} is too large", quoted(key));
  }
  if (__builtin_mul_overflow(bits, kTypes[type].bits, &bits)) return fmt::format("tensor {} is too large", quoted(key));
  if (bits % 8 == 0 && bytes == bits / 8) return {};
  return fmt::format("tensor {} has {} bytes, which are not {} of shape [{}]", quoted(key), bytes, tensor.dtype,
                     fmt::join(tensor.shape, ", "));
}

void check_texts(const std::map<std::string, std::string>& texts) {
  for (const auto& [key, text] : texts) {
    check_utf8("the text", key);
    check_utf8("the text", text);
  }
}

using Named = std::pair<const std::string, StoredTensor>;

std::vector<const Named*> in_file_order(const std::map<std::string, StoredTensor>& tensors) {
  std::vector<const Named*> order;
  for (const Named& named : tensors) order.push_back(&named);
  const auto rank = [](const Named* n) {
    const std::size_t type = type_index(n->second.dtype);
    return type == kTypes.size() ? 0 : type + 1;  // unknown ones last: nothing is known of their alignment
  };
  std::ranges::stable_sort(order, std::ranges::greater(), rank);  // by name within a type, as the map is
  return order;
}

// The library reads files with a key twice and drops one of them.
Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> open;
  return Json::parse(text, [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      corrupt(fmt::format("{} is there twice", quoted(parsed.get<std::string>())));
    return true;
  });
}

// For a sentence: what holds others may be as deep as the file is long.
std::string shown(const Json& value) {
  return value.is_structured() ? std::string("an ") + value.type_name() : value.dump();
}

// nlohmann would make any number of any other.
std::vector<std::size_t> numbers(const Json& list, const std::string& key) {
  if (!list.is_array()) corrupt(fmt::format("tensor {} has {} for a list", quoted(key), shown(list)));
  std::vector<std::size_t> all;
  for (const Json& value : list) {
    if (!value.is_number_unsigned()) corrupt(fmt::format("tensor {} has {} for a size", quoted(key), shown(value)));
    all.push_back(value.get<std::size_t>());
  }
  return all;
}

struct Listed {
  std::string key;
  StoredTensor tensor;  // without bytes
  std::size_t begin = 0, end = 0;
};

Listed parse_tensor(const std::string& key, const Json& json) {
  Listed row{key, {json.at("dtype").get<std::string>(), {}, {}}};
  row.tensor.shape = numbers(json.at("shape"), key);
  const auto ends = numbers(json.at("data_offsets"), key);
  if (ends.size() != 2) corrupt(fmt::format("tensor {} has not two offsets", quoted(key)));
  row.begin = ends[0];
  row.end = ends[1];
  return row;
}

// The data is covered from its first byte to its last, each once.
void check_offsets(std::vector<Listed>& rows, std::uint64_t data_bytes) {
  std::ranges::stable_sort(rows, {}, [](const Listed& row) { return std::pair(row.begin, row.end); });
  std::size_t at = 0;
  for (const Listed& row : rows) {
    if (row.begin != at || row.end < row.begin || row.end > data_bytes) {
      corrupt(fmt::format("tensor {} lies from {} to {} of {} bytes, but the one before it ends at {}", quoted(row.key),
                          row.begin, row.end, data_bytes, at));
    }
    const std::string fault = fault_of(row.key, row.tensor, row.end - row.begin);
    if (!fault.empty()) corrupt(fault);
    at = row.end;
  }
  if (at != data_bytes) corrupt(fmt::format("{} bytes follow its last tensor", data_bytes - at));
}

std::map<std::string, std::string> parse_texts(const Json& json) {
  std::map<std::string, std::string> texts;
  if (json.is_null()) return texts;
  if (!json.is_object()) corrupt(fmt::format("its texts are {}", shown(json)));
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) corrupt(fmt::format("the text {} is no string but {}", quoted(key), shown(value)));
    texts[key] = value.get<std::string>();
  }
  return texts;
}

// `data_bytes`: empty where the header is known to be whole.
Checkpoint read_tensors(std::string_view header, std::optional<std::uint64_t> data_bytes, const NextBytes& next) {
  Checkpoint checkpoint;
  std::vector<Listed> rows;
  try {
    const Json json = parse_json(header);
    for (const auto& [key, value] : json.items()) {
      if (key == kTexts) {
        checkpoint.texts = parse_texts(value);
      } else {
        rows.push_back(parse_tensor(key, value));
      }
    }
  } catch (const Json::exception& error) {
    corrupt(error.what());
  }
  std::size_t end = 0;
  for (const Listed& row : rows) end = std::max(end, row.end);
  check_offsets(rows, data_bytes.value_or(end));
  for (Listed& row : rows) {
    row.tensor.bytes.resize(row.end - row.begin);
    next(row.tensor.bytes);
    checkpoint.tensors.emplace(std::move(row.key), std::move(row.tensor));
  }
  return checkpoint;
}

}  // namespace

void check_tensor(const std::string& key, const StoredTensor& tensor) {
  const std::string fault = fault_of(key, tensor, tensor.bytes.size());
  if (!fault.empty()) no_file(fault);
}

Layout lay_out(const Checkpoint& checkpoint) {
  check_texts(checkpoint.texts);
  Layout layout;
  std::string header;
  if (!checkpoint.texts.empty()) header = fmt::format("\"{}\":{}", kTexts, Json(checkpoint.texts).dump());
  std::size_t end = 0;
  for (const Named* named : in_file_order(checkpoint.tensors)) {
    const auto& [key, tensor] = *named;
    if (key == kTexts) no_file(fmt::format("no tensor can have the name {}", quoted(key)));
    check_utf8("the tensor's name", key);
    check_utf8("the type", tensor.dtype);
    check_tensor(key, tensor);
    const std::size_t begin = std::exchange(end, end + tensor.bytes.size());
    header += fmt::format(R"({}{}:{{"dtype":{},"shape":[{}],"data_offsets":[{},{}]}})", header.empty() ? "" : ",",
                          Json(key).dump(), Json(tensor.dtype).dump(), fmt::join(tensor.shape, ","), begin, end);
    layout.data.push_back(tensor.bytes);
  }
  header = "{" + header + "}";
  header.append((kAlignment - header.size() % kAlignment) % kAlignment, ' ');
  if (header.size() > kMaxHeader) no_file(fmt::format("its header would have {} bytes, of 100 MB", header.size()));
  const std::uint64_t length = header.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), sizeof length);
  layout.head += header;
  return layout;
}

Checkpoint read_checkpoint(std::uint64_t bytes, const NextBytes& next) {
  std::uint64_t length = 0;
  if (bytes < sizeof length) corrupt("it is shorter than 8 bytes");
  next(std::as_writable_bytes(std::span(&length, 1)));
  bytes -= sizeof length;
  if (length > bytes || length > kMaxHeader) corrupt("its header is longer than the file, or than 100 MB");
  std::string header(length, '\0');
  next(std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{')) corrupt("its header does not begin with {");
  return read_tensors(header, bytes - length, next);
}

Checkpoint read_checkpoint(std::string_view head, const NextBytes& next) {
  return read_tensors(head.substr(sizeof(std::uint64_t)), {}, next);
}

}  // namespace rondo::trainer
