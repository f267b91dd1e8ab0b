// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/tuning.hpp"

#include <rondo/error.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::comm;

TEST_CASE("a tuning comes back from its text") {
  Tuning tuning = parse_tuning("flat_bytes 3K\nstreaming_bytes never\nlinks all_reduce 256K 4 ring # few\n", "here");
  CHECK(tuning.flat_bytes == 3072);
  CHECK(tuning.streaming_bytes == UINT64_MAX);
  CHECK(tuning.chunk_bytes == Tuning{}.chunk_bytes);
  CHECK(tuning.source == "here");
  REQUIRE(tuning.links.size() == 1);
  CHECK(tuning.links[0].max_bytes == 256 << 10);
  CHECK(tuning.links[0].max_world_size == 4);
  CHECK_FALSE(tuning.links[0].canonical);

  std::uint64_t different = 5 << 10;
  for (const TuningField& field : tuning_fields()) tuning.*field.value = different += 1024;
  const Tuning again = parse_tuning(to_text(tuning), "there");
  for (const TuningField& field : tuning_fields()) {
    INFO(field.name);
    CHECK(again.*field.value == tuning.*field.value);
  }
  REQUIRE(again.links.size() == 1);
  CHECK(again.links[0].algorithm == "ring");
  CHECK(again.links[0].max_world_size == 4);
}

TEST_CASE("what follows another value does so until it is named itself, before it or behind it") {
  const Tuning alone = parse_tuning("single_copy_bytes 64K\n", "here");
  CHECK(alone.single_copy_root_bytes == 16 << 10);
  CHECK(alone.single_copy_sum_bytes == 256 << 10);
  CHECK(alone.single_copy_crowd_bytes_of_two == 512 << 10);
  for (const char* const text :
       {"single_copy_bytes never\nsingle_copy_sum_bytes 1M\n", "single_copy_sum_bytes 1M\nsingle_copy_bytes never\n"}) {
    const Tuning both = parse_tuning(text, "here");
    CHECK(both.single_copy_sum_bytes == 1 << 20);
    CHECK(both.single_copy_root_bytes == UINT64_MAX);
    CHECK(both.single_copy_crowd_bytes == UINT64_MAX);
  }
  CHECK(parse_tuning("streaming_bytes 16M\n", "here").handed_bytes == 6 << 20);
  CHECK(parse_tuning("streaming_bytes 2M\n", "here").few_sum_chunk_bytes == 256 << 10);
  const Tuning defaults = parse_tuning("", "here");
  for (const TuningField& field : tuning_fields()) {
    INFO(field.name);
    if (field.leader != nullptr) CHECK(defaults.*field.value == field.from_leader(defaults.*field.leader));
    CHECK(defaults.*field.value == Tuning{}.*field.value);
  }
}

TEST_CASE("a tuning's faults are told with their line") {
  const auto chosen = GENERATE(table<std::string, std::string>({
      {"\nflat 3", "file, line 2: flat is not a setting"},
      {"chunk_bytes", "file, line 1: chunk_bytes needs a value"},
      {"chunk_bytes 1", "file, line 1: chunk_bytes takes 4K to 1G, not 1"},
      {"chunk_bytes 64Q", "file, line 1: chunk_bytes takes 4K to 1G, not 64Q"},
      {"chunk_bytes 64K 1", "file, line 1: 1 does not belong there"},
      {"flat_bytes 99999999999999999999", "file, line 1: flat_bytes takes 0 to never, not 99999999999999999999"},
      {"flat_bytes 99999999999999999G", "file, line 1: flat_bytes takes 0 to never, not 99999999999999999G"},
      {"links all_reduce 1K *", "file, line 1: links takes PATTERN MAX_BYTES MAX_WORLD_SIZE ALGORITHM"},
      {"links all 1K * ring", "file, line 1: all is not a collective"},
      {"links broadcast 1K * two_shot", "file, line 1: two_shot is not an algorithm of broadcast"},
      {"links broadcast x * ring", "file, line 1: x is not a number of bytes"},
      {"links broadcast * 1e9 ring", "file, line 1: 1e9 is not a number of ranks"},
  }));
  const auto& text = std::get<0>(chosen);  // not a binding: clang 14 captures none
  const auto& sentence = std::get<1>(chosen);
  INFO(text);
  CHECK(test::sentence_of(test::thrown_by([&] { parse_tuning(text, "file"); })) == sentence);
  CHECK(test::sentence_of(test::thrown_by([] { read_tuning("/does/not/exist"); })) ==
        "RONDO_TUNING=/does/not/exist: the file cannot be read, or is empty");
}
