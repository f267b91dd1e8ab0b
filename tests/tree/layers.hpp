// SPDX-License-Identifier: Apache-2.0
// The rules of the house as tables.
#pragma once
#include <string_view>
#include <vector>

namespace rondo::tree {

// Lowest first: a layer may include itself and what it lists, which lies in layers above it in this table.
struct Layer {
  std::string_view folder;             // the longest matching folder decides
  std::vector<std::string_view> ours;  // folders (ending in '/') and single headers
};
inline const std::vector<Layer>& layers() {
  static const std::vector<Layer> table = {
      {"kernels/simt/", {}},
      {"kernels/", {"kernels/simt/"}},
      {"comm/base/", {"kernels/include/rondo/export.hpp", "kernels/thread.hpp", "comm/include/rondo/error.hpp"}},
      {"comm/", {"kernels/", "comm/base/"}},
      {"proto/", {}},
      {"rendezvous/",
       {"proto/", "comm/base/", "kernels/include/rondo/export.hpp", "kernels/thread.hpp",
        "comm/include/rondo/error.hpp", "comm/include/rondo/store.hpp", "comm/setup/authenticator.hpp",
        "comm/setup/encryption.hpp", "comm/setup/recruiter.hpp"}},
      {"runtime/", {"kernels/", "comm/base/", "comm/", "rendezvous/"}},
      {"trainer/", {"kernels/include/", "comm/include/", "comm/base/majority.hpp"}},
      {"tools/", {"kernels/", "comm/base/", "comm/", "proto/", "rendezvous/", "runtime/", "trainer/"}},
      {"bench/",
       {"kernels/", "comm/base/", "comm/", "proto/", "rendezvous/", "runtime/", "trainer/", "tools/command_line.hpp"}},
      {"tools/tune/",
       {"kernels/", "comm/base/", "comm/", "runtime/", "tools/command_line.hpp", "tools/rondorun/gpus.hpp", "bench/"}},
      {"examples/", {"kernels/include/", "comm/include/", "runtime/include/", "trainer/include/"}},
      {"bindings/", {"kernels/include/", "comm/include/", "runtime/include/", "trainer/include/"}},
      {"tests/",
       {"kernels/simt/", "kernels/", "comm/base/", "comm/", "proto/", "rendezvous/", "runtime/", "trainer/", "tools/",
        "tools/tune/", "bench/", "examples/", "bindings/"}},
  };
  return table;
}

// Rooms of one layer that know nothing of each other: not even through what others include may the one reach the other.
struct Strangers {
  std::string_view folder, stranger;
};
inline const std::vector<Strangers>& strangers() {
  static const std::vector<Strangers> table = {
      {"comm/device/launch/", "comm/node/"},  // launches know of calls, not of the board
      {"comm/device/memory/", "comm/node/"},
  };
  return table;
}

// Who may include which library; the first row that fits decides. What is not listed counts as the standard library or
// the OS and is free for all.
struct Library {
  std::string_view prefix;
  std::vector<std::string_view> users;  // folders and single files
};
inline const std::vector<Library>& libraries() {
  static const std::vector<Library> table = {
      {"boost/context/", {"kernels/simt/"}},
      {"boost/", {"comm/transport/", "rendezvous/", "tools/", "bench/", "tests/"}},
      {"catch2/", {"tests/"}},
      {"CLI/", {"tools/", "bench/", "examples/"}},
      {"cuda",
       {"kernels/cuda/declarations.hpp", "kernels/cuda/libcudart.cpp", "kernels/device/", "tests/kernels/cuda/"}},
      {"fmt/", {"comm/", "rendezvous/", "runtime/", "trainer/", "tools/", "bench/", "examples/", "tests/"}},
      {"google/protobuf/", {"rendezvous/", "tests/"}},
      {"nanobind/", {"bindings/python/"}},
      {"nlohmann/", {"trainer/", "tools/", "bench/", "tests/"}},
      {"openssl/", {"rendezvous/", "tests/"}},
      {"pybind11/", {"bindings/torch/"}},
      {"spdlog/", {"comm/base/log.cpp"}},
      {"torch/",
       {"bindings/torch/", "trainer/include/rondo/torch.hpp", "trainer/include/rondo/torch/", "bench/ddp/",
        "examples/cifar/", "examples/spirals.cpp", "tests/torch/", "tests/bindings/torch/", "tests/package/torch/"}},
  };
  return table;
}

// What a header of a library brings along today and does not promise: who uses the name includes its header.
struct Home {
  std::string_view name, header;
};
inline const std::vector<Home>& homes() {
  static const std::vector<Home> table = {
      {"fmt::join", "fmt/ranges.h"},  // fmt 11 took it out of fmt/format.h
      {"fmt::streamed", "fmt/ostream.h"},
      {"fmt::localtime", "fmt/chrono.h"},
      {"fmt::gmtime", "fmt/chrono.h"},
  };
  return table;
}

}  // namespace rondo::tree
