// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/dataset.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>

namespace fashion_mnist {
namespace {

class GzipFile {
 public:
  explicit GzipFile(std::string path) : path_(std::move(path)), file_(gzopen(path_.c_str(), "rb"), gzclose) {
    if (file_ == nullptr) {
      throw std::runtime_error(
          fmt::format("cannot open {}; install the package dataset-fashion-mnist, or name a folder with the four "
                      "gzipped idx files by --data",
                      path_));
    }
  }
  void read(std::uint8_t* out, std::size_t bytes) {
    constexpr std::size_t kMost = 1 << 24;
    for (std::size_t done = 0; done < bytes;) {
      const int got = gzread(file_.get(), out + done, static_cast<unsigned>(std::min(bytes - done, kMost)));
      if (got <= 0) throw std::runtime_error(fmt::format("{} is damaged: it ends {} bytes early", path_, bytes - done));
      done += static_cast<std::size_t>(got);
    }
  }
  std::uint32_t read_u32() {
    std::array<std::uint8_t, 4> b{};
    read(b.data(), b.size());
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }
  void expect(const char* field, std::uint32_t expected) {
    const std::uint32_t got = read_u32();
    if (got != expected) {
      throw std::runtime_error(fmt::format("{}: {} is {}, expected {}", path_, field, got, expected));
    }
  }

 private:
  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

}  // namespace

Dataset load(const std::string& folder, const std::string& prefix, std::size_t limit) {
  Dataset data;
  GzipFile images(folder + "/" + prefix + "-images-idx3-ubyte.gz");
  images.expect("the magic number", 0x803);  // unsigned bytes, three dimensions
  const std::uint32_t count = images.read_u32();
  images.expect("the number of rows", 28);
  images.expect("the number of columns", 28);
  GzipFile labels(folder + "/" + prefix + "-labels-idx1-ubyte.gz");
  labels.expect("the magic number", 0x801);
  labels.expect("the number of labels", count);

  const std::size_t wanted = limit == 0 ? count : std::min<std::size_t>(limit, count);
  for (std::size_t read = 0; read < wanted; ++read) {  // image by image: a header that lies costs no memory
    data.pixels.resize((read + 1) * kPixels);
    images.read(data.pixels.data() + read * kPixels, kPixels);
  }
  data.labels.resize(wanted);
  labels.read(data.labels.data(), wanted);
  const auto wrong = std::find_if(data.labels.begin(), data.labels.end(), [](auto label) { return label >= kClasses; });
  if (wrong != data.labels.end()) {
    throw std::runtime_error(fmt::format("{}/{}: label {} is not a class below {}", folder, prefix, *wrong, kClasses));
  }
  return data;
}

}  // namespace fashion_mnist
