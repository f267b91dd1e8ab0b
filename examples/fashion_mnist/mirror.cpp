// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/mirror.hpp"

#include <algorithm>

namespace fashion_mnist {

Mirror::Mirror(Network& network, rondo::Device device) : network_(network) {
  if (device.kind == rondo::Device::Kind::cpu) return;
  stream_ = rondo::DeviceStream(device);
  for (Tensor& t : network_.tensors()) copies_.push_back({{device, t.values}, {device, t.gradient.size()}});
}

std::vector<rondo::trainer::Parameter> Mirror::parameters() {
  std::vector<rondo::trainer::Parameter> all;
  for (std::size_t i = 0; i < network_.tensors().size(); ++i) {
    Tensor& t = network_.tensors()[i];
    all.push_back(copies_.empty()
                      ? rondo::trainer::parameter(t.name, std::span(t.values), std::span(t.gradient))
                      : rondo::trainer::parameter(t.name, copies_[i].values.span(), copies_[i].gradient.span()));
  }
  return all;
}

void Mirror::values_to_host() {
  for (std::size_t i = 0; i < copies_.size(); ++i) network_.tensors()[i].values = copies_[i].values.to_host();
}

void Mirror::gradient_to_device(std::size_t tensor) {
  if (!copies_.empty()) copies_[tensor].gradient.copy_from(network_.tensors()[tensor].gradient);
}

void Mirror::gradients_to_host() {
  for (std::size_t i = 0; i < copies_.size(); ++i) network_.tensors()[i].gradient = copies_[i].gradient.to_host();
}

}  // namespace fashion_mnist
