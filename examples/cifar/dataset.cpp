// SPDX-License-Identifier: Apache-2.0
#include "examples/cifar/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace cifar {
namespace {

constexpr std::size_t kRecord = 1 + kPixels;
constexpr int kPadding = 4;

void append(Dataset& data, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error(
        fmt::format("cannot open {}; name the folder of CIFAR-10's binary version, cifar-10-batches-bin", path));
  }
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    throw std::runtime_error(
        fmt::format("{} is damaged: {} bytes are no whole number of records of {}", path, bytes.size(), kRecord));
  }
  for (auto record = bytes.begin(); record != bytes.end(); record += kRecord) {
    const auto label = static_cast<std::uint8_t>(*record);
    if (label >= kClasses) throw std::runtime_error(fmt::format("{}: label {} is not below {}", path, label, kClasses));
    data.labels.push_back(label);
    data.pixels.insert(data.pixels.end(), record + 1, record + kRecord);
  }
}

float normal(std::uint8_t value) { return (static_cast<float>(value) / 255 - 0.5F) / 0.5F; }

std::uint64_t mixed(std::uint64_t key) {  // splitmix64
  key += 0x9e3779b97f4a7c15;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9;
  key = (key ^ (key >> 27)) * 0x94d049bb133111eb;
  return key ^ (key >> 31);
}

}  // namespace

Dataset load_training(const std::string& folder) {
  Dataset data;
  for (int i = 1; i <= 5; ++i) append(data, fmt::format("{}/data_batch_{}.bin", folder, i));
  return data;
}

Dataset load_test(const std::string& folder) {
  Dataset data;
  append(data, folder + "/test_batch.bin");
  return data;
}

Dataset in_colour(std::span<const std::uint8_t> pixels, std::span<const std::uint8_t> labels, std::size_t side) {
  const std::size_t margin = (kSide - side) / 2;
  Dataset data{std::vector<std::uint8_t>(labels.size() * kPixels), {labels.begin(), labels.end()}};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t row = 0; row < kChannels * side; ++row) {
      const auto from = pixels.subspan((i * side + row % side) * side, side);
      const std::size_t to_row = (i * kChannels + row / side) * kSide + margin + row % side;
      std::copy(from.begin(), from.end(), data.pixels.begin() + static_cast<std::ptrdiff_t>(to_row * kSide + margin));
    }
  }
  return data;
}

void normalise(std::span<const std::uint8_t> image, float* out) {
  std::transform(image.begin(), image.end(), out, normal);
}

void crop_flip_normalise(std::span<const std::uint8_t> image, std::uint64_t key, float* out) {
  const std::uint64_t draw = mixed(key);
  constexpr int kPlaces = 2 * kPadding + 1;
  const int down = static_cast<int>(draw % kPlaces) - kPadding;
  const int right = static_cast<int>(draw / kPlaces % kPlaces) - kPadding;
  const bool flip = draw / (kPlaces * kPlaces) % 2 == 1;
  constexpr int kEnd = static_cast<int>(kSide);
  for (int row = 0; row < static_cast<int>(kChannels) * kEnd; ++row) {
    const int y = row % kEnd + down;
    for (int column = 0; column < kEnd; ++column) {
      const int x = (flip ? kEnd - 1 - column : column) + right;
      const bool inside = y >= 0 && y < kEnd && x >= 0 && x < kEnd;
      *out++ = normal(inside ? image[static_cast<std::size_t>((row + down) * kEnd + x)] : std::uint8_t{0});
    }
  }
}

}  // namespace cifar
