// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/mirror.hpp"

#include "examples/fashion_mnist/precision.hpp"

namespace fashion_mnist {
namespace {

bool on_host(const rondo::Device& device) { return device.kind == rondo::Device::Kind::cpu; }

}  // namespace

Mirror::Array::Array(rondo::Device device, rondo::DataType dtype, std::size_t count)
    : dtype_(dtype), host_(count * size_of(dtype)) {
  if (!on_host(device)) device_ = rondo::DeviceMemory(device, host_.size());
}

void* Mirror::Array::data() { return device_.data() != nullptr ? device_.data() : host_.data(); }

void Mirror::Array::write(std::span<const double> values) {
  store(values, host_.data(), dtype_);
  if (device_.data() != nullptr) device_.copy_from(host_.data(), host_.size());
}

void Mirror::Array::read(std::span<double> values) {
  if (device_.data() != nullptr) device_.copy_to(host_.data(), host_.size());
  fetch(host_.data(), values, dtype_);
}

Mirror::Mirror(Network& network, rondo::Device device, rondo::DataType dtype) : network_(network), dtype_(dtype) {
  if (on_host(device) && dtype == rondo::DataType::f64) return;
  if (!on_host(device)) stream_ = rondo::DeviceStream(device);
  for (Tensor& t : network_.tensors()) {
    copies_.push_back({{device, dtype, t.values.size()}, {device, dtype, t.gradient.size()}});
    copies_.back().values.write(t.values);
  }
}

std::vector<rondo::trainer::Parameter> Mirror::parameters() {
  std::vector<rondo::trainer::Parameter> all;
  for (std::size_t i = 0; i < network_.tensors().size(); ++i) {
    Tensor& t = network_.tensors()[i];
    if (copies_.empty()) {
      all.push_back(rondo::trainer::parameter(t.name, std::span(t.values), std::span(t.gradient)));
    } else {
      all.push_back({t.name, copies_[i].values.data(), copies_[i].gradient.data(), t.values.size(), dtype_});
    }
  }
  return all;
}

void Mirror::values_to_host() {
  for (std::size_t i = 0; i < copies_.size(); ++i) copies_[i].values.read(network_.tensors()[i].values);
}

void Mirror::gradient_to_device(std::size_t tensor) {
  if (!copies_.empty()) copies_[tensor].gradient.write(network_.tensors()[tensor].gradient);
}

void Mirror::gradients_to_host() {
  for (std::size_t i = 0; i < copies_.size(); ++i) copies_[i].gradient.read(network_.tensors()[i].gradient);
}

}  // namespace fashion_mnist
