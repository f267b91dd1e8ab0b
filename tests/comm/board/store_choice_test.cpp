// SPDX-License-Identifier: Apache-2.0
#include "comm/board/store_choice.hpp"

#include "tests/support/catch.hpp"

using rondo::comm::StoreChoice;
using rondo::kernels::Stores;

namespace {

constexpr std::size_t kBytes = 64 << 10;

// Writes so many chunks, which take that long by kind; how many went past the caches.
int write(StoreChoice& choice, int chunks, std::uint64_t plain_ticks, std::uint64_t streaming_ticks,
          std::size_t bytes = kBytes) {
  int streamed = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Stores stores = choice.next(bytes);
    streamed += stores == Stores::streaming;
    if (choice.timed()) choice.took(stores == Stores::plain ? plain_ticks : streaming_ticks, bytes);
  }
  return streamed;
}

}  // namespace

TEST_CASE("stores go past the caches where that is much faster, for chunks of that length") {
  StoreChoice choice;
  write(choice, 20, 100'000, 20'000);
  CHECK(write(choice, 100, 0, 0) == 100);
  CHECK(write(choice, 100, 20'000, 20'000, kBytes / 8) <= 10);
}

TEST_CASE("stores stay in the caches where both take about as long, and for a few bytes") {
  StoreChoice choice;
  write(choice, 20, 50'000, 20'000);  // what is read takes longer then
  CHECK(write(choice, 100, 0, 0) == 0);
  CHECK(write(choice, 100, 100'000, 1'000, 512) == 0);
}

TEST_CASE("the choice follows cores that move") {
  StoreChoice choice;
  write(choice, 100, 100'000, 20'000);
  write(choice, 3000, 20'000, 20'000);
  CHECK(write(choice, 100, 20'000, 20'000) <= 10);
  write(choice, 3000, 100'000, 20'000);
  CHECK(write(choice, 100, 100'000, 20'000) >= 90);
}
