// SPDX-License-Identifier: Apache-2.0
// Images and labels in MNIST's idx format, gzipped as they are distributed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fashion_mnist {

inline constexpr std::size_t kPixels = 28 * 28;
inline constexpr std::size_t kClasses = 10;

struct Dataset {
  std::vector<std::uint8_t> pixels;  // kPixels per image
  std::vector<std::uint8_t> labels;  // one per image, below kClasses
  std::size_t size() const { return labels.size(); }
};

// Reads FOLDER/PREFIX-images-idx3-ubyte.gz and FOLDER/PREFIX-labels-idx1-ubyte.gz, `limit` images at most (0: all).
// std::runtime_error with one sentence when a file is missing, damaged, or not what it should be.
Dataset load(const std::string& folder, const std::string& prefix, std::size_t limit);

}  // namespace fashion_mnist
