// SPDX-License-Identifier: Apache-2.0
// The network's tensors where and in the format that the communicator wants them: the host's own doubles on the CPU,
// else copies in device memory, in 16 bits, or both.
#pragma once
#include <cstddef>
#include <vector>

#include <rondo/device.hpp>
#include <rondo/trainer.hpp>

#include "examples/fashion_mnist/network.hpp"

namespace fashion_mnist {

class Mirror {
 public:
  // The network outlives it. dtype: of values and gradients there; see gradient_type().
  Mirror(Network& network, rondo::Device device, rondo::DataType dtype);
  std::vector<rondo::trainer::Parameter> parameters();
  rondo::Stream stream() const { return stream_.get(); }

  // Where the tensors are the host's own there is nothing to do. Each returns when the copy is done.
  void values_to_host();
  void gradient_to_device(std::size_t tensor);
  void gradients_to_host();

 private:
  class Array {
   public:
    Array(rondo::Device device, rondo::DataType dtype, std::size_t count);
    void* data();
    void write(std::span<const double> values);
    void read(std::span<double> values);

   private:
    rondo::DataType dtype_;
    std::vector<std::byte> host_;  // the array, or what is on its way to the device or from it
    rondo::DeviceMemory device_;
  };
  struct Copy {
    Array values, gradient;
  };
  Network& network_;
  const rondo::DataType dtype_;
  rondo::DeviceStream stream_;
  std::vector<Copy> copies_;  // none where the tensors are the host's own
};

}  // namespace fashion_mnist
