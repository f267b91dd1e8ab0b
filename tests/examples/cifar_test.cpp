// SPDX-License-Identifier: Apache-2.0
// A small CIFAR-10 in the real layout: five files of records for training, one for testing.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "examples/cifar/dataset.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"

namespace {

using cifar::kPixels;
using rondo::test::contains;

std::uint8_t pixel(std::size_t image, std::size_t i) { return static_cast<std::uint8_t>((image * 7 + i) % 251); }

std::string records(std::vector<int> labels) {
  std::string bytes;
  for (const int label : labels) {
    bytes.push_back(static_cast<char>(label));
    for (std::size_t i = 0; i < kPixels; ++i) bytes.push_back(static_cast<char>(pixel(label, i)));
  }
  return bytes;
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("cifar_test." + std::to_string(getpid()))) {
    std::filesystem::create_directory(path_);
    for (int i = 1; i <= 5; ++i) write("data_batch_" + std::to_string(i) + ".bin", records({i, i + 1}));
    write("test_batch.bin", records({9}));
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string error_of(const Folder& folder) {
  try {
    cifar::load_test(folder.path());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::uint8_t> numbered() {
  std::vector<std::uint8_t> image(kPixels);
  for (std::size_t i = 0; i < kPixels; ++i) image[i] = static_cast<std::uint8_t>(1 + i % 255);
  return image;
}
float normal(std::uint8_t value) { return (static_cast<float>(value) / 255 - 0.5F) / 0.5F; }

// The shift and the mirroring that give `got`, as (down + 4) * 18 + (right + 4) * 2 + flip; -1: none does.
int transform_of(const std::vector<std::uint8_t>& image, const std::vector<float>& got) {
  for (int code = 0; code < 9 * 9 * 2; ++code) {
    const int down = code / 18 - 4, right = code / 2 % 9 - 4;
    bool fits = true;
    for (int i = 0; fits && i < static_cast<int>(kPixels); ++i) {
      const int y = i / 32 % 32 + down, x = (code % 2 ? 31 - i % 32 : i % 32) + right;
      const bool inside = std::min(x, y) >= 0 && std::max(x, y) < 32;
      fits = got[i] == normal(inside ? image[i / 1024 * 1024 + y * 32 + x] : std::uint8_t{0});
    }
    if (fits) return code;
  }
  return -1;
}

}  // namespace

TEST_CASE("CIFAR-10's binary files are read record by record, in their order") {
  const Folder folder;
  const auto training = cifar::load_training(folder.path());
  CHECK(training.labels == std::vector<std::uint8_t>{1, 2, 2, 3, 3, 4, 4, 5, 5, 6});
  REQUIRE(training.pixels.size() == 10 * kPixels);
  for (std::size_t i = 0; i < 10 * kPixels; ++i)
    REQUIRE(training.pixels[i] == pixel(training.labels[i / kPixels], i % kPixels));
  CHECK(cifar::load_test(folder.path()).labels == std::vector<std::uint8_t>{9});
  CHECK(training.image(9)[5] == pixel(6, 5));
}

TEST_CASE("CIFAR-10: a file that is cut, empty or missing, and a label that is none") {
  const Folder folder;
  folder.write("test_batch.bin", records({1}).substr(1));
  CHECK(contains(error_of(folder), "test_batch.bin is damaged: 3072 bytes are no whole number of records of 3073"));
  folder.write("test_batch.bin", "");
  CHECK(contains(error_of(folder), "is damaged: 0 bytes"));
  folder.write("test_batch.bin", records({1, 10}));
  CHECK(contains(error_of(folder), "label 10 is not below 10"));
  std::filesystem::remove(folder.path() + "/test_batch.bin");
  CHECK(contains(error_of(folder), "cannot open"));
}

TEST_CASE("CIFAR-10: grey images of 28x28 lie in the middle of each channel") {
  std::vector<std::uint8_t> grey(2 * 28 * 28, 9);
  grey[28 * 28 + 29] = 77;  // of the second: row 1, column 1
  const auto data = cifar::in_colour(grey, std::vector<std::uint8_t>{3, 4}, 28);
  CHECK(data.labels == std::vector<std::uint8_t>{3, 4});
  for (std::size_t i = 0; i < kPixels; ++i) {
    const std::size_t x = i % 32, y = i / 32 % 32;
    const bool inside = std::min(x, y) >= 2 && std::max(x, y) < 30;
    REQUIRE(data.image(0)[i] == (inside ? 9 : 0));
    REQUIRE(data.image(1)[i] == (x == 3 && y == 3 ? 77 : inside ? 9 : 0));
  }
}

TEST_CASE("CIFAR-10: crops reach every place, half of them mirrored, and a key gives the same again") {
  const auto image = numbered();
  std::vector<float> plain(kPixels), got(kPixels), again(kPixels);
  cifar::normalise(image, plain.data());
  CHECK(transform_of(image, plain) == 4 * 18 + 4 * 2);
  CHECK(plain[0] == normal(1));
  std::vector<int> seen(9 * 9 * 2);
  for (std::uint64_t key = 0; key < 2000; ++key) {
    cifar::crop_flip_normalise(image, key, got.data());
    const int code = transform_of(image, got);
    REQUIRE(code >= 0);
    ++seen[static_cast<std::size_t>(code)];
  }
  CHECK(std::count(seen.begin(), seen.end(), 0) == 0);
  cifar::crop_flip_normalise(image, 1999, again.data());
  CHECK(again == got);
}
