// SPDX-License-Identifier: Apache-2.0
// A rank on a simulated device: all join and are idle for a second, then rank 1 broadcasts and leaves.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include <rondo/rondo.hpp>

#include "bench/site.hpp"

namespace {

constexpr std::size_t kBytes = 512;

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

void broadcast() {
  auto communicator =
      rondo::Communicator::from_environment({.device = rondo::Device::sim(), .timeout = std::chrono::seconds(120)});
  const auto site = rondo::bench::Site::make(communicator);
  const auto data = site->allocate(kBytes);
  const auto call = [&] {
    communicator.submit({.collective = rondo::Collective::broadcast,
                         .send = data.get(),
                         .recv = data.get(),
                         .count = kBytes,
                         .dtype = rondo::DataType::u8,
                         .root = 1,
                         .stream = site->stream()});
    site->drain();
    communicator.check();
  };
  call();
  say(fmt::format("joined {}", ::getpid()));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  site->fill(data.get(), static_cast<std::byte>(communicator.rank()), kBytes);
  call();
  const std::byte* got = site->read(data.get(), kBytes);
  if (std::any_of(got, got + kBytes, [](std::byte value) { return value != std::byte{1}; }))
    throw std::logic_error("what was broadcast is wrong");
  say("done ");
}

}  // namespace

int main() {
  try {
    broadcast();
  } catch (const std::exception& error) {
    say(fmt::format("error {}", error.what()));
    return 1;
  }
}
