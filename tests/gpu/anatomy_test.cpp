// SPDX-License-Identifier: Apache-2.0
// Kernels with stamps, on the simulated device: every place is stamped, once, in order, with times that grow.
#include "tools/gpu_check/anatomy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

using namespace rondo::gpu_check;
using rondo::kernels::device::kStampNames;

std::string word_of(rondo::kernels::device::Stamp place) {
  const std::string_view name = kStampNames[static_cast<std::size_t>(place)];
  return std::string(name.substr(0, name.find(':')));
}

// The places that every rank passes, which must be the same for all.
std::string places(const AnatomyCase& what) {
  const Anatomy found = take_apart(rondo::cuda::soft_api(), soft_stamped_kernels(), what, {3, 2, 2});
  std::vector<std::vector<std::string>> ranks(static_cast<std::size_t>(what.ranks));
  double before_us = 0;
  for (const PlaceRow& row : found.rows) {
    std::vector<std::string>& words = ranks.at(static_cast<std::size_t>(row.rank));
    CHECK(row.order == static_cast<int>(words.size()));
    if (row.order == 0) before_us = 0;
    CHECK(row.median_us >= before_us);
    CHECK(row.least_us <= row.median_us);
    CHECK(row.median_us <= row.most_us);
    before_us = row.median_us;
    words.push_back(word_of(row.place));
  }
  CHECK(found.late_us.size() == ranks.size());
  CHECK(found.call.median_us > 0);
  for (const auto& words : ranks) CHECK(words == ranks.front());
  return fmt::format("{}", fmt::join(ranks.front(), ", "));
}

}  // namespace

TEST_CASE("a sum's places, buffers in windows") {
  const std::string alone = "begin, awaited, opened, posted, seen, met, moved, finished, end";
  const std::string together =
      "begin, awaited, opened, posted, seen, met, moved, posted again, met again, finished, end";
  CHECK(places({.window = true, .registered = true, .ranks = 1}) == alone);
  CHECK(places({.window = true, .registered = true, .ranks = 2}) == together);
  CHECK(places({.window = true, .registered = true, .ranks = 8}) == together);
  CHECK(places({.window = true, .registered = true, .ranks = 2, .early = true}) == together);
}

TEST_CASE("a sum's places, ordinary buffers: staged, and met once") {
  CHECK(places({.window = true, .registered = false, .ranks = 2}) ==
        "begin, awaited, opened, planned, moved, posted, seen, met, decided, moved, finished, end");
}

TEST_CASE("LL's places: one round of sends to all peers, then one fold") {
  CHECK(places({.window = false, .registered = false, .ranks = 1}) ==
        "begin, awaited, opened, shared, chosen, moved, credited, finished, end");
  for (const int ranks : {2, 8}) {
    CHECK(places({.window = false, .registered = false, .ranks = ranks}) ==
          "begin, awaited, opened, shared, chosen, moved, credited, arrived, folded, credited, finished, end");
  }
}

TEST_CASE("a push's places: to all peers, then from all") {
  for (const int ranks : {1, 2, 8}) {
    CHECK(places({.window = false, .registered = false, .ranks = ranks, .push = true}) ==
          "begin, awaited, posted, folded, finished, end");
  }
}

TEST_CASE("a place's name may stand between commas") {
  for (const char* name : kStampNames) CHECK(std::string(name).find(',') == std::string::npos);
}
