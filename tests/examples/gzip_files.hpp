// SPDX-License-Identifier: Apache-2.0
// A folder of small data sets in MNIST's format, gone when the owner is.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

class DatasetFolder {
 public:
  DatasetFolder();
  ~DatasetFolder();
  DatasetFolder(const DatasetFolder&) = delete;
  DatasetFolder& operator=(const DatasetFolder&) = delete;
  const std::string& path() const { return path_; }

  void write(const std::string& name, const std::vector<std::uint8_t>& bytes) const;
  // PREFIX-images… and PREFIX-labels…: every class a pattern of its own, in noise; easy to learn.
  void write_patterns(const std::string& prefix, std::uint32_t images, std::uint32_t seed) const;

 private:
  std::string path_;
};

// Header of an idx file: the magic number, then the dimensions, big-endian.
std::vector<std::uint8_t> idx_header(const std::vector<std::uint32_t>& words);
