// SPDX-License-Identifier: Apache-2.0
// The host's memory and a simulated device's behind one interface.
#include "bench/site.hpp"

#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "bench/buffers.hpp"
#include "kernels/cuda/api.hpp"
#include "tests/support/catch.hpp"

namespace {

using rondo::bench::Site;

constexpr std::size_t kBytes = 1000;

std::unique_ptr<Site> site_of(bool device) {
  return device ? rondo::bench::make_device_site(rondo::Device::sim(0)) : rondo::bench::make_host_site();
}

void count_up(std::byte* to) {
  for (std::size_t i = 0; i < kBytes; ++i) to[i] = static_cast<std::byte>(i);
}

// Adds to what the site's stream has to do: copies of `from` to `to`.
std::function<void()> copying(Site& site, std::byte* to, const std::byte* from, int& calls) {
  return [&site, to, from, &calls] {
    ++calls;
    rondo::cuda::soft_api().MemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice,
                                        static_cast<cudaStream_t>(site.stream()));
  };
}

}  // namespace

TEST_CASE("what is written to a site is read from it, also from the middle") {
  const auto site = site_of(GENERATE(false, true));
  const auto memory = site->allocate(kBytes);
  site->fill(memory.get(), std::byte{7}, kBytes);
  site->write(memory.get() + 100, kBytes - 200, [](std::byte* to) { std::fill(to, to + kBytes - 200, std::byte{9}); });
  const std::byte* got = site->read(memory.get() + 50, kBytes - 100);
  for (std::size_t i = 0; i < kBytes - 100; ++i)
    if (got[i] != (i < 50 || i >= kBytes - 150 ? std::byte{7} : std::byte{9})) FAIL("byte " << i);
}

TEST_CASE("a touched guard is counted, in its own set alone") {
  const auto site = site_of(GENERATE(false, true));
  rondo::Communicator none;
  const rondo::bench::GuardedBuffer buffer(*site, none, kBytes, 3, false);
  for (int set = 0; set < 3; ++set) buffer.poison(set);
  site->fill(buffer.data(1) + kBytes - 2, std::byte{0}, 5);
  CHECK(buffer.count_touched_guard_bytes(0) == 0);
  CHECK(buffer.count_touched_guard_bytes(1) == 3);
  CHECK(buffer.count_touched_guard_bytes(2) == 0);
}

TEST_CASE("an eager batch makes the calls in every pass, and takes the time until they are done") {
  const auto site = site_of(true);
  const auto from = site->allocate(kBytes), to = site->allocate(kBytes);
  site->write(from.get(), kBytes, count_up);
  int calls = 0;
  const auto batch = site->batch(copying(*site, to.get(), from.get(), calls), 0);
  CHECK(calls == 0);
  CHECK(batch->seconds() >= 0);
  CHECK(batch->host_seconds() > 0);
  CHECK(batch->seconds() >= 0);
  CHECK(calls == 2);
  CHECK(site->read(to.get(), kBytes)[200] == std::byte{200});
}

TEST_CASE("a graph batch makes the calls once, and does them as often as it is launched") {
  const auto site = site_of(true);
  const auto from = site->allocate(kBytes), to = site->allocate(kBytes);
  site->fill(to.get(), std::byte{1}, kBytes);
  int calls = 0;
  const auto batch = site->batch(copying(*site, to.get(), from.get(), calls), 3);
  CHECK(calls == 1);
  CHECK(site->read(to.get(), kBytes)[999] == std::byte{1});  // captured, not done
  for (const std::byte value : {std::byte{5}, std::byte{6}}) {
    site->fill(from.get(), value, kBytes);
    CHECK(batch->seconds() >= 0);
    CHECK(site->read(to.get(), kBytes)[999] == value);
  }
  CHECK(calls == 1);
}

TEST_CASE("calls that throw leave no capture behind") {
  const auto site = site_of(true);
  CHECK_THROWS_AS(site->batch([] { throw std::runtime_error("no"); }, 1), std::runtime_error);
  const auto memory = site->allocate(kBytes);
  site->fill(memory.get(), std::byte{3}, kBytes);
  CHECK(site->read(memory.get(), kBytes)[0] == std::byte{3});
}

TEST_CASE("a simulated device says who it is, and has no bandwidth") {
  const auto site = site_of(true);
  const nlohmann::json device = site->describe();
  CHECK(device["uuid"].get<std::string>().size() == 40);
  CHECK_FALSE(device["name"].get<std::string>().empty());
  CHECK(site->copy_gbps() == 0);
  CHECK(site_of(false)->describe().is_null());
}
