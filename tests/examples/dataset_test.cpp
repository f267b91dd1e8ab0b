// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/dataset.hpp"

#include "tests/examples/gzip_files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"

namespace {

using rondo::test::contains;

std::vector<std::uint8_t> images_of(std::uint32_t count, std::vector<std::uint32_t> header) {
  std::vector<std::uint8_t> bytes = idx_header(header);
  for (std::uint32_t i = 0; i < count * 784; ++i) bytes.push_back(static_cast<std::uint8_t>(i % 251));
  return bytes;
}
std::vector<std::uint8_t> labels_of(std::vector<std::uint8_t> labels) {
  std::vector<std::uint8_t> bytes = idx_header({0x801, static_cast<std::uint32_t>(labels.size())});
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

std::string error_of(const DatasetFolder& folder) {
  try {
    fashion_mnist::load(folder.path(), "t", 0);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("images and labels are read as they lie in the files, as many as asked for") {
  const DatasetFolder folder;
  folder.write("t-images-idx3-ubyte.gz", images_of(3, {0x803, 3, 28, 28}));
  folder.write("t-labels-idx1-ubyte.gz", labels_of({7, 0, 9}));
  const auto all = fashion_mnist::load(folder.path(), "t", 0);
  CHECK(all.labels == std::vector<std::uint8_t>{7, 0, 9});
  REQUIRE(all.pixels.size() == 3 * 784);
  for (std::size_t i = 0; i < all.pixels.size(); ++i) CHECK(all.pixels[i] == i % 251);
  CHECK(fashion_mnist::load(folder.path(), "t", 2).labels == std::vector<std::uint8_t>{7, 0});
  CHECK(fashion_mnist::load(folder.path(), "t", 9).size() == 3);
}

TEST_CASE("a file that is missing or wrong is told by its name and field") {
  const DatasetFolder folder;
  CHECK(contains(error_of(folder), "t-images-idx3-ubyte.gz; install the package"));
  folder.write("t-images-idx3-ubyte.gz", images_of(1, {0x801, 1, 28, 28}));
  CHECK(contains(error_of(folder), "magic number is 2049, expected 2051"));
  folder.write("t-images-idx3-ubyte.gz", images_of(1, {0x803, 1, 28, 27}));
  CHECK(contains(error_of(folder), "columns is 27, expected 28"));
  folder.write("t-images-idx3-ubyte.gz", images_of(1, {0x803, 2, 28, 28}));
  CHECK(contains(error_of(folder), "t-labels-idx1-ubyte.gz; install"));
  folder.write("t-labels-idx1-ubyte.gz", labels_of({1}));
  CHECK(contains(error_of(folder), "number of labels is 1, expected 2"));
  folder.write("t-labels-idx1-ubyte.gz", labels_of({1, 2}));
  CHECK(contains(error_of(folder), "damaged: it ends 784 bytes early"));
  folder.write("t-images-idx3-ubyte.gz", images_of(2, {0x803, 2, 28, 28}));
  CHECK(error_of(folder).empty());
  folder.write("t-labels-idx1-ubyte.gz", labels_of({1, 10}));
  CHECK(contains(error_of(folder), "label 10 is not a class"));
}

TEST_CASE("a header that promises four billion images costs no memory before they are there") {
  const DatasetFolder folder;
  folder.write("t-images-idx3-ubyte.gz", images_of(1, {0x803, 0xffffffff, 28, 28}));
  folder.write("t-labels-idx1-ubyte.gz", idx_header({0x801, 0xffffffff}));
  CHECK(contains(error_of(folder), "damaged"));
}
