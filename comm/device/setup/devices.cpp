// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.hpp>

#include "comm/device/memory/cuda_handles.hpp"
#include "comm/device/setup/device_cards.hpp"

namespace rondo::comm::device {

const cuda::Api& api_of(rondo::Device::Kind kind) {
  if (kind == rondo::Device::Kind::sim) return cuda::soft_api();
  if (kind == rondo::Device::Kind::cpu) throw Error(ErrorCode::invalid_argument, "the CPU is not a CUDA device");
  if (kind != rondo::Device::Kind::cuda) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Device::kind is {}: it is cpu, cuda or sim", static_cast<int>(kind)));
  }
  std::string obstacle;
  const cuda::Api* api = cuda::find_cuda(obstacle);
  if (api == nullptr) throw Error(ErrorCode::unsupported, obstacle);
  return *api;
}

int choose_device(const cuda::Api& api, int wanted, int local_rank) {
  int count = 0;
  check(api, api.GetDeviceCount(&count), std::max(wanted, 0), "counting devices");
  if (count == 0) throw Error(ErrorCode::unsupported, fmt::format("there is no {} device", api.name));
  if (wanted >= count || wanted < -1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("there is no {} device {}: 0 to {} are visible", api.name, wanted, count - 1));
  }
  return wanted == -1 ? local_rank % count : wanted;
}

}  // namespace rondo::comm::device
