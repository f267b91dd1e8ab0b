// SPDX-License-Identifier: Apache-2.0
// Words that only some files may use, as a table.
#pragma once
#include <string_view>
#include <vector>

#include "tests/tree/lint.hpp"

namespace rondo::tree {

// Identifiers, not texts: `words` name them whole, or their beginning: "a*" all, "a^" those where a capital follows.
struct Words {
  std::string_view name;  // what a violation calls them
  std::vector<std::string_view> words;
  std::vector<std::string_view> harmless;    // exceptions among the identifiers, spelled as `words`
  std::vector<std::string_view> where;       // folders (ending in '/') and single files that the rule is for
  std::vector<std::string_view> suffixes;    // of those files; none: all
  std::vector<std::string_view> exceptions;  // folders, files and beginnings of paths (ending in '*')
  bool used_only;                            // only where '(' follows or '&' precedes
  std::string_view instead;
};

inline const std::vector<Words>& word_rules() {
  static const std::vector<std::string_view> ours = {"kernels/", "comm/",  "rendezvous/", "runtime/", "trainer/",
                                                     "tools/",   "bench/", "examples/",   "bindings/"};
  static const std::vector<Words> table = {
      {"environment", {"getenv", "secure_getenv"}, {}, ours, {}, {"comm/base/env.cpp"}, false, "use comm/base/env.hpp"},
      {"a thread without an owner", {"detach"}, {}, ours, {}, {}, true, "give the thread an owner that joins it"},
      {"a thread that takes the program's signals",
       {"thread"},
       {},
       {"kernels/", "comm/", "rendezvous/", "runtime/", "trainer/"},
       {},
       {"kernels/thread.hpp"},
       true,
       "start it by start_thread()"},
      {"a thread that takes the program's signals",
       {"jthread", "pthread_create"},
       {},
       {"kernels/", "comm/", "rendezvous/", "runtime/", "trainer/"},
       {},
       {"kernels/thread.hpp"},
       false,
       "start it by start_thread()"},
      {"raw CUDA",
       {"__*", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "asm", "volatile", "atomic*", "printf",
        "simt"},
       {"__builtin_*", "__is_*"},
       {"kernels/device/", "kernels/algorithms/", "tools/gpu_check/"},
       {".cuh", ".cu", ".hpp"},
       {"kernels/device/seam*"},
       false,
       "kernels say it through kernels/device/seam.cuh"},
      {"the CUDA runtime",
       {"cuda^", "cu^"},
       {},
       {"kernels/", "comm/", "rendezvous/", "runtime/", "trainer/", "tools/", "bench/", "examples/", "tests/"},
       {},
       {"kernels/cuda/libcudart.cpp"},
       true,
       "call it through a cuda::Api"},
  };
  return table;
}

// One sentence per violation, as `violations` says them.
std::vector<std::string> word_violations(const Source& source);

}  // namespace rondo::tree
