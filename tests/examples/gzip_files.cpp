// SPDX-License-Identifier: Apache-2.0
#include "tests/examples/gzip_files.hpp"

#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>

DatasetFolder::DatasetFolder() : path_((std::filesystem::temp_directory_path() / "rondo-data-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
}

DatasetFolder::~DatasetFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void DatasetFolder::write(const std::string& name, const std::vector<std::uint8_t>& bytes) const {
  gzFile file = gzopen((path_ + "/" + name).c_str(), "wb1");
  if (file == nullptr) throw std::runtime_error("cannot write " + name);
  const auto size = static_cast<unsigned>(bytes.size());
  const bool written = bytes.empty() || gzwrite(file, bytes.data(), size) == static_cast<int>(size);
  if (gzclose(file) != Z_OK || !written) throw std::runtime_error("cannot write " + name);
}

std::vector<std::uint8_t> idx_header(const std::vector<std::uint32_t>& words) {
  std::vector<std::uint8_t> bytes;
  for (const std::uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  }
  return bytes;
}

void DatasetFolder::write_patterns(const std::string& prefix, std::uint32_t images, std::uint32_t seed) const {
  std::mt19937 engine(seed);
  std::vector<std::uint8_t> pixels = idx_header({0x803, images, 28, 28});
  std::vector<std::uint8_t> labels = idx_header({0x801, images});
  for (std::uint32_t i = 0; i < images; ++i) {
    const auto label = static_cast<std::uint32_t>(engine() % 10);
    labels.push_back(static_cast<std::uint8_t>(label));
    for (std::uint32_t p = 0; p < 28 * 28; ++p) {
      const std::uint32_t bright = p / 28 % 10 == label ? 150 : 0;
      pixels.push_back(static_cast<std::uint8_t>(bright + engine() % 100));
    }
  }
  write(prefix + "-images-idx3-ubyte.gz", pixels);
  write(prefix + "-labels-idx1-ubyte.gz", labels);
}
