// SPDX-License-Identifier: Apache-2.0
#include "bench/host_memory.hpp"

#include <sched.h>

#include "bench/surroundings.hpp"
#include "tests/support/catch.hpp"

TEST_CASE("the largest cache has a size that a cache can have") {
  const std::size_t bytes = rondo::bench::largest_cache_bytes();
  CHECK(bytes >= std::size_t{128} << 10);
  CHECK(bytes <= std::size_t{4} << 30);
}

TEST_CASE("memory is copied, read and written at speeds that memory can have") {
  const rondo::bench::MemoryRates rates = rondo::bench::memory_rates_of_cpus({::sched_getcpu()});
  for (const double gbps : {rates.copy, rates.load, rates.store}) {
    CHECK(gbps > 0.1);
    CHECK(gbps < 2000);
  }
}

TEST_CASE("the host's memory is the wire of ranks on one host without devices") {
  const nlohmann::json here = {{"host", "a"}}, there = {{"host", "b"}};
  rondo::bench::Surroundings s{.ranks = {here, here}, .devices = {}, .host_memory = {.copy = 50}};
  CHECK(s.shares_host());
  CHECK(s.shared_memory().copy == 50);
  s.ranks.push_back(there);
  CHECK_FALSE(s.shares_host());
  s = {.ranks = {here, here}, .devices = {{nlohmann::json::object(), {0, 1}}}};
  CHECK_FALSE(s.shares_host());
  CHECK(s.shared_memory().copy == 0);
}
