// SPDX-License-Identifier: Apache-2.0
// The format: what its own library writes is read and written again with the same bytes, what it refuses is refused.
#include <cstring>
#include <fstream>
#include <iterator>

#include <rondo/trainer/checkpoint.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

namespace {

using rondo::DataType;
using rondo::test::contains;
using rondo::test::sentence_of;
using rondo::test::thrown_by;
using namespace rondo::trainer;
using Shape = std::vector<std::size_t>;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
// A file by hand: the length, the header, the data.
std::vector<std::byte> file_of(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return bytes_of(text + header + data);
}
std::vector<std::byte> made_by_python() {
  std::ifstream in(RONDO_TRAINER_DATA "/types.safetensors", std::ios::binary);
  return bytes_of({std::istreambuf_iterator<char>(in), {}});
}
std::string refusal_of(const std::string& header, const std::string& data = "xyz") {
  return sentence_of(thrown_by([&] { Checkpoint::parse(file_of(header, data)); }));
}
std::vector<std::byte> counted(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i + 1);
  return bytes;
}

}  // namespace

TEST_CASE("a file of Python's with every type is read, and written again with the same bytes") {
  const auto bytes = made_by_python();
  const Checkpoint read = Checkpoint::parse(bytes);
  struct Row {
    const char *name, *dtype;
    std::size_t bytes;
  };
  const Row rows[] = {
      {"uint8", "U8", 6},
      {"int8", "I8", 6},
      {"int16", "I16", 12},
      {"uint16", "U16", 12},
      {"int32", "I32", 24},
      {"uint32", "U32", 24},
      {"int64", "I64", 48},
      {"uint64", "U64", 48},
      {"float16", "F16", 12},
      {"bfloat16", "BF16", 12},
      {"float32", "F32", 24},
      {"float64", "F64", 48},
      {"complex64", "C64", 48},
      {"float8_e5m2", "F8_E5M2", 6},
      {"float8_e4m3fn", "F8_E4M3", 6},
      {"float8_e8m0fnu", "F8_E8M0", 6},
      {"float8_e4m3fnuz", "F8_E4M3FNUZ", 6},
      {"float8_e5m2fnuz", "F8_E5M2FNUZ", 6},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    CHECK(read.tensors.at(row.name) == StoredTensor{row.dtype, {2, 3}, counted(row.bytes)});
  }
  CHECK(read.tensors.at("float4_e2m1fn_x2") == StoredTensor{"F4", {2, 6}, counted(6)});
  CHECK(read.tensors.at("bool") == StoredTensor{"BOOL", {2, 3}, bytes_of(std::string("\1\0\1\0\1\0", 6))});
  CHECK(read.tensors.at("scalar.bool") == StoredTensor{"BOOL", {}, bytes_of("\1")});
  CHECK(read.tensors.at("scalar.f32").shape.empty());
  CHECK(read.tensors.at("one").shape == Shape{1});
  CHECK(read.tensors.at("empty") == StoredTensor{"F16", {0, 5}, {}});
  CHECK(read.tensors.count("a \"quoted\" \\ name\n\t\x01") == 1);
  CHECK(read.tensors.count("größe/大きさ") == 1);
  CHECK(read.texts == std::map<std::string, std::string>{{"note", "é \"q\"\n"}});
  std::int64_t batches = 0;
  read.get(Parameter{"norm.num_batches_tracked", &batches, nullptr, 1, DataType::i64, Shape{}});
  CHECK(batches == 2);
  CHECK(read.serialize() == bytes);
}

TEST_CASE("a type that the library does not calculate with is refused on use alone, by name") {
  const Checkpoint read = Checkpoint::parse(made_by_python());
  std::vector<std::uint8_t> values(6);
  Parameter wanted{"bool", values.data(), nullptr, 6, DataType::u8, Shape{2, 3}};
  CHECK(contains(sentence_of(thrown_by([&] { read.get(wanted); })),
                 "'bool' is BOOL [2, 3] in the checkpoint, but U8 [2, 3] in the model"));
  const Checkpoint future =
      Checkpoint::parse(file_of(R"({"a":{"dtype":"F3_NEW","shape":[7],"data_offsets":[0,3]}})", "xyz"));
  CHECK(future.tensors.at("a") == StoredTensor{"F3_NEW", {7}, bytes_of("xyz")});
  CHECK(Checkpoint::parse(future.serialize()).tensors == future.tensors);
  wanted.name = "a";
  CHECK(contains(sentence_of(thrown_by([&] { future.get(wanted); })), "'a' is F3_NEW [7] in the checkpoint"));
  CHECK(Checkpoint::parse(file_of(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", "xyz"))
            .tensors.at("a")
            .bytes == bytes_of("xyz"));
}

TEST_CASE("the bytes are the format's: wide types first, so that all of them are aligned") {
  std::vector<std::uint8_t> narrow = {7};
  std::vector<double> wide = {1.0};
  Checkpoint checkpoint;
  CHECK(checkpoint.serialize() == file_of("{}      ", ""));
  checkpoint.put(parameter("a", std::span(narrow)));
  checkpoint.put(parameter("b", std::span(wide)));
  const std::string header = R"({"b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                             R"("a":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  const std::string spaces((8 - header.size() % 8) % 8, ' ');
  CHECK(checkpoint.serialize() == file_of(header + spaces, std::string("\0\0\0\0\0\0\xf0\x3f\x07", 9)));
}

TEST_CASE("headers that the format allows: any order, padding, unknown fields, no texts") {
  const Checkpoint read = Checkpoint::parse(file_of(R"({ "b" : {"shape":[2],"dtype":"U8","data_offsets":[1,3],"x":0},
      "e":{"dtype":"F64","shape":[4611686018427387904,0],"data_offsets":[1,1]},
      "a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"__metadata__":null}  )"
                                                    "\n",
                                                    "xyz"));
  CHECK(read.tensors.at("a").bytes == bytes_of("x"));
  CHECK(read.tensors.at("b").bytes == bytes_of("yz"));
  CHECK(read.tensors.at("e").shape.size() == 2);
  CHECK(read.texts.empty());
}

TEST_CASE("what the format does not allow is said") {
  const auto tensor = [](const std::string& name, const std::string& type, const std::string& shape,
                         const std::string& offsets) {
    return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const auto refused = [](const std::string& header, const std::string& part) {
    const std::string sentence = refusal_of(header);
    INFO(header << "\n" << sentence);
    CHECK(contains(sentence, "not a safetensors file"));
    CHECK(contains(sentence, part));
  };
  const auto one = [&](const std::string& type, const std::string& shape, const std::string& offsets) {
    return "{" + tensor("a", type, shape, offsets) + "}";
  };
  refused(one("U8", "[2]", "[2,4]"), "'a' lies from 2 to 4 of 3 bytes");
  refused(one("U8", "[2]", "[1,3]"), "'a' lies from 1 to 3 of 3 bytes, but the one before it ends at 0");
  refused(one("U8", "[4]", "[0,4]"), "'a' lies from 0 to 4 of 3 bytes");
  refused(one("U8", "[2]", "[0,3]"), "'a' has 3 bytes, which are not U8 of shape [2]");
  refused(one("U8", "[2]", "[3,1]"), "'a' lies from 3 to 1");
  refused(one("U8", "[2]", "[0,2]"), "1 bytes follow its last tensor");
  refused(one("F4", "[3]", "[0,2]"), "which are not F4 of shape [3]");
  refused(one("U8", "[4294967296,4294967296]", "[0,0]"), "'a' is too large");
  refused(one("F64", "[4611686018427387904]", "[0,0]"), "'a' is too large");
  refused(one("U8", "[-3]", "[0,3]"), "'a' has -3 for a size");
  refused(one("U8", "[3.0]", "[0,3]"), "'a' has 3.0 for a size");
  refused(one("U8", "3", "[0,3]"), "'a' has 3 for a list");
  refused(one("U8", "[3]", "[0,3,3]"), "'a' has not two offsets");
  refused(one("U8", "[3]", "[0,18446744073709551616]"), "for a size");
  refused("{" + tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[1,3]") + "}", "'b' lies from 1");
  refused("{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("b", "U8", "[1]", "[2,3]") + "}", "'b' lies from 2");
  refused("{" + tensor("a", "U8", "[3]", "[0,3]") + "," + tensor("a", "U8", "[3]", "[0,3]") + "}",
          "'a' is there twice");
  refused(R"({"a":{"dtype":"U8","dtype":"I8","shape":[3],"data_offsets":[0,3]}})", "'dtype' is there twice");
  refused(R"({"__metadata__":{"k":"1","k":"2"}})", "'k' is there twice");
  refused(R"({"__metadata__":{"epoch":3}})", "the text 'epoch' is no string but 3");
  refused(R"({"__metadata__":["epoch"]})", "its texts are an array");
  refused(R"({"a":{"dtype":"U8","shape":[1]}})", "data_offsets");
  refused(R"({"a":{"dtype":8,"shape":[3],"data_offsets":[0,3]}})", "string");
  refused(R"({"a":)", "parse error");
  refused("{\"a\xff\":{}}", "UTF-8");
  refused("{}}", "parse error");
  refused(" {}", "does not begin with {");
  refused("[]", "does not begin with {");
  refused("", "does not begin with {");
  CHECK(contains(sentence_of(thrown_by([] { Checkpoint::parse(bytes_of("short")); })), "shorter than 8 bytes"));
  const auto longer = bytes_of("\xff\xff\xff\xff\xff\xff\xff\x7f{}");
  CHECK(contains(sentence_of(thrown_by([&] { Checkpoint::parse(longer); })), "header is longer than the file"));
}

TEST_CASE("a long header") {
  Checkpoint checkpoint;
  for (int i = 0; i < 20'000; ++i)
    checkpoint.put(std::string(100, 'x') + std::to_string(i), {"U8", {1}, {static_cast<std::byte>(i)}});
  CHECK(Checkpoint::parse(checkpoint.serialize()).tensors == checkpoint.tensors);
  Checkpoint too_long;
  too_long.texts["a"] = std::string(100'000'000, 'x');
  CHECK(contains(sentence_of(thrown_by([&] { too_long.serialize(); })), "its header would have 100000"));
}

TEST_CASE("what no file can hold is refused by name before one is written") {
  const auto refused = [](const Checkpoint& checkpoint, const std::string& part) {
    const std::string sentence = sentence_of(thrown_by([&] { checkpoint.serialize(); }));
    INFO(sentence);
    CHECK(contains(sentence, part));
  };
  Checkpoint checkpoint;
  checkpoint.tensors["__metadata__"] = {"U8", {}, bytes_of("x")};
  refused(checkpoint, "no tensor can have the name '__metadata__'");
  checkpoint.tensors = {{"a", {"U8", {2}, bytes_of("x")}}};
  refused(checkpoint, "'a' has 1 bytes, which are not U8 of shape [2]");
  checkpoint.tensors = {{"a\xff", {"U8", {1}, bytes_of("x")}}};
  refused(checkpoint, "the tensor's name 'a\\ufffd' is not UTF-8");
  checkpoint.tensors.clear();
  checkpoint.texts = {{"k", "\xc0\x80"}};
  refused(checkpoint, "is not UTF-8");
  CHECK(contains(sentence_of(thrown_by([&] {
                   checkpoint.put("a", {"F32", {1}, bytes_of("x")});
                 })),
                 "'a' has 1 bytes, which are not F32 of shape [1]"));
}

TEST_CASE("a header as deep as it is long is refused like any other") {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  CHECK(contains(refusal_of(R"({"w":{"dtype":"U8","data_offsets":[0,3],"shape":)" + deep + "}}"),
                 "'w' has an array for a size"));
  CHECK(contains(refusal_of(R"({"__metadata__":)" + deep + "}"), "its texts are an array"));
}
