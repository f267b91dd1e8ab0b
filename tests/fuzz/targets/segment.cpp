// SPDX-License-Identifier: Apache-2.0
// The words that ranks of a node leave in the memory that they share: a rank that has lost its mind writes anything.
#include <cstring>
#include <memory>

#include "comm/team/failure.hpp"
#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

using namespace comm;

// Zeroes behind the input's bytes; nothing else of the segment follows, so reading on is seen.
template <class Words>
std::unique_ptr<Words> words_of(Bytes bytes) {
  auto words = std::make_unique<Words>();
  std::memcpy(static_cast<void*>(words.get()), bytes.data(), std::min(bytes.size(), sizeof(Words)));
  return words;
}

void read_failure(Bytes bytes) {
  const auto record = words_of<FailureRecord>(bytes);
  record->state = FailureRecord::kSet;
  const Failure failure(0, *record, Doorbells());
  expect(failure.raised() && failure.sentence().size() <= record->sentence.size(), "a sentence that goes on");
  expect(!accepts([&] { failure.check(); }), "a failure that is none");
  const std::string told = failure.error().what();
  expect(told.size() <= 4 * record->sentence.size(), "a sentence with more than was written: " + told);
}

void read_calls(Bytes bytes) {
  const auto history = words_of<CallHistory>(bytes);
  Signature own{.sequence = 1, .count = 3}, theirs;
  for (own.sequence = 1; own.sequence <= 2 * kHistory; ++own.sequence) {
    if (!read_history(*history, own.sequence, theirs)) continue;
    expect(theirs.sequence == own.sequence, "another call than was asked for");
    expect(!describe(theirs).empty(), "a call without a name");
    static_cast<void>(compare(0, own, 1, theirs));
  }
}

template <class Words>
std::string text_of_words(const Words& words) {
  return {reinterpret_cast<const char*>(&words), sizeof words};
}

}  // namespace

void run_segment(Bytes input) {
  Script script(input);
  if (script.byte() % 2 == 0) return read_failure(script.rest());
  read_calls(script.rest());
}

std::vector<std::string> segment_seeds() {
  FailureRecord record{};
  Failure(1, record, Doorbells(Segment(), std::make_shared<std::vector<Fd>>()))
      .raise(ErrorCode::peer_lost, 1, "rank 1 is lost");
  FailureRecord full = {};
  full.sentence.fill('x');
  CallHistory history{};
  write_history(history, {.sequence = 7, .count = 3, .collective = Collective::broadcast, .root = 1});
  return {std::string(1, '\0') + text_of_words(record), std::string(1, '\0') + text_of_words(full),
          "\1" + text_of_words(history)};
}

}  // namespace rondo::fuzz
