// SPDX-License-Identifier: Apache-2.0
// A rank on a simulated device: device_looper MODE [BAD_RANK]. It joins and reduces for ever; "loop", or the field in
// which BAD_RANK differs: count, dtype, op, collective. It does not obey SIGTERM: it has something to say first.
#include <fmt/format.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <rondo/rondo.hpp>

#include "bench/site.hpp"

namespace {

constexpr std::size_t kCount = 20'000;

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

rondo::Call all_reduce(std::byte* data, rondo::Stream stream) {
  return {.collective = rondo::Collective::all_reduce,
          .send = data,
          .recv = data,
          .count = kCount,
          .dtype = rondo::DataType::f32,
          .stream = stream};
}

rondo::Call misbehaved(rondo::Call call, const std::string& mode) {
  if (mode == "count") call.count -= 1;
  if (mode == "dtype") call.dtype = rondo::DataType::i32;
  if (mode == "op") call.op = rondo::ReduceOp::max;
  if (mode == "collective") {
    call.collective = rondo::Collective::broadcast;
    call.root = 0;
  }
  return call;
}

[[noreturn]] void loop(const std::string& mode, int bad_rank) {
  auto communicator =
      rondo::Communicator::from_environment({.device = rondo::Device::sim(), .timeout = std::chrono::seconds(20)});
  const auto site = rondo::bench::Site::make(communicator);
  const auto data = site->allocate(kCount * sizeof(float));
  site->fill(data.get(), std::byte{0}, kCount * sizeof(float));
  const rondo::Call right = all_reduce(data.get(), site->stream());
  const rondo::Call mine = communicator.rank() == bad_rank ? misbehaved(right, mode) : right;
  const auto call = [&](const rondo::Call& one) {
    communicator.submit(one);
    site->drain();
    communicator.check();
  };
  call(right);
  say(fmt::format("joined {} {}", communicator.rank(), ::getpid()));
  for (;;) call(mine);
}

}  // namespace

int main(int, char** argv) {
  std::signal(SIGTERM, SIG_IGN);
  try {
    loop(argv[1], argv[2] != nullptr ? std::atoi(argv[2]) : -1);
  } catch (const std::exception& error) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    say(fmt::format("error at {} {}", std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                    error.what()));
    return 1;
  }
}
