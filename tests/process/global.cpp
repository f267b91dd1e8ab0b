// SPDX-License-Identifier: Apache-2.0
// A rank whose communicator and memory are global, so that they end after main: global cpu|sim.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <rondo/device.hpp>
#include <rondo/rondo.hpp>

namespace {

rondo::Communicator comm;
rondo::DeviceArray<float> on_device;
std::vector<float> on_host(4, 1.0F);

}  // namespace

int main(int, char** argv) {
  try {
    const bool simulated = std::string(argv[1]) == "sim";
    comm = rondo::Communicator::from_environment({.device = simulated ? rondo::Device::sim(0) : rondo::Device::cpu()});
    if (simulated) on_device = rondo::DeviceArray<float>(comm.device(), on_host);
    comm.all_reduce(simulated ? on_device.span() : std::span<float>(on_host), rondo::ReduceOp::sum);
    comm.synchronize();
    if (simulated) on_host = on_device.to_host();
    std::printf("the sum is %g\n", static_cast<double>(on_host[0]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
