// SPDX-License-Identifier: Apache-2.0
// The modules of data/make_checkpoints.py, and a folder for files.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "tests/torch/models.hpp"

namespace rondo::test {

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "rondo-torch-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    last = register_module("last", torch::nn::Linear(4, 3));
    scale = register_parameter("scale", torch::tensor(0.5), false);
    mask = register_buffer("mask", torch::zeros({3}, torch::kBool));
    // As Python's double(); to(kDouble) would also convert the mask and the count of batches.
    auto tensors = parameters();
    for (const torch::Tensor& buffer : buffers()) tensors.push_back(buffer);
    for (torch::Tensor& t : tensors) {
      if (t.is_floating_point()) t.set_data(t.to(torch::kDouble));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(norm(torch::tanh(first(x)))) * scale * mask; }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale, mask;
};
TORCH_MODULE(Net);

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embed = register_module("embed", torch::nn::Embedding(5, 4));
    decode = register_module("decode", std::make_shared<DecodeImpl>());
    decode->register_parameter("weight", embed->weight);
  }
  struct DecodeImpl : torch::nn::Module {};
  torch::nn::Embedding embed{nullptr};
  std::shared_ptr<DecodeImpl> decode;
};
TORCH_MODULE(Tied);

// Shapes and types at the edges, with values of the seed.
struct OddImpl : torch::nn::Module {
  explicit OddImpl(int seed) {
    register_parameter("scalar", torch::tensor(seed + 0.5));
    register_parameter("empty", torch::zeros({0, 3}));
    register_buffer("flag", torch::tensor(seed == 1));
    register_buffer("short", torch::full({2}, seed, torch::kShort));
    register_buffer("phase", torch::complex(torch::full({3}, seed + 1.0), torch::full({3}, seed + 2.0)));
    register_buffer("half", torch::full({2}, seed + 0.5, torch::kHalf));
    register_buffer("turned", torch::full({3, 2}, seed + 0.5).t() + torch::arange(2 * 3).reshape({2, 3}));
    register_buffer("nothing", torch::Tensor());
  }
};
TORCH_MODULE(Odd);

}  // namespace rondo::test
