// SPDX-License-Identifier: Apache-2.0
// The network's tensors where the communicator wants them: the host's own on the CPU, else copies in device memory.
#pragma once
#include <cstddef>
#include <vector>

#include <rondo/device.hpp>
#include <rondo/trainer.hpp>

#include "examples/fashion_mnist/network.hpp"

namespace fashion_mnist {

class Mirror {
 public:
  Mirror(Network& network, rondo::Device device);  // the network outlives it
  std::vector<rondo::trainer::Parameter> parameters();
  rondo::Stream stream() const { return stream_.get(); }

  // On the CPU there is nothing to do. Each returns when the copy is done.
  void values_to_host();
  void gradient_to_device(std::size_t tensor);
  void gradients_to_host();

 private:
  struct Copy {
    rondo::DeviceArray<double> values, gradient;
  };
  Network& network_;
  rondo::DeviceStream stream_;
  std::vector<Copy> copies_;  // none on the CPU
};

}  // namespace fashion_mnist
