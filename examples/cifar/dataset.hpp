// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 in its binary format, and what the tutorials do to an image before it goes into the network.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cifar {

inline constexpr std::size_t kSide = 32;
inline constexpr std::size_t kChannels = 3;  // red, green, blue, one whole plane after the other
inline constexpr std::size_t kPixels = kChannels * kSide * kSide;
inline constexpr std::size_t kClasses = 10;

struct Dataset {
  std::vector<std::uint8_t> pixels;  // kPixels per image
  std::vector<std::uint8_t> labels;  // one per image, below kClasses
  std::size_t size() const { return labels.size(); }
  std::span<const std::uint8_t> image(std::size_t i) const { return std::span(pixels).subspan(i * kPixels, kPixels); }
};

// FOLDER/data_batch_1.bin to data_batch_5.bin, or FOLDER/test_batch.bin: records of a label and kPixels bytes.
// std::runtime_error with one sentence when a file is missing or not what it should be.
Dataset load_training(const std::string& folder);
Dataset load_test(const std::string& folder);

// Square images of one channel, put in the middle of black ones of three equal channels.
Dataset in_colour(std::span<const std::uint8_t> pixels, std::span<const std::uint8_t> labels, std::size_t side);

// kPixels numbers: (value / 255 - 0.5) / 0.5.
void normalise(std::span<const std::uint8_t> image, float* out);
// The same of a part of the image that was padded by 4 black pixels on each side, mirrored in one case of two. Where
// and whether depends on `key` alone, so that a sample is the same in worlds of any size.
void crop_flip_normalise(std::span<const std::uint8_t> image, std::uint64_t key, float* out);

}  // namespace cifar
