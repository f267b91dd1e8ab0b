// SPDX-License-Identifier: Apache-2.0
// The checker on planted violations, then on the repository itself.
#include "tests/tree/lint.hpp"

#include <algorithm>

#include "tests/support/catch.hpp"
#include "tests/tree/layers.hpp"

namespace {

using rondo::tree::Source;

const std::string kSpdx = "// SPDX-License-Identifier: Apache-2.0\n";

// A file of the tree that includes `lines`, among the headers it may want.
std::vector<std::string> check(const std::string& path, const std::string& lines) {
  std::vector<Source> sources;
  for (const char* header :
       {"kernels/reduce.hpp", "kernels/cuda/api.hpp", "kernels/simt/lane_api.hpp", "kernels/include/rondo/export.hpp",
        "comm/base/env.hpp", "comm/call/engine.hpp", "comm/include/rondo/error.hpp", "comm/include/rondo/store.hpp",
        "comm/include/rondo/communicator.hpp", "comm/setup/authenticator.hpp", "comm/transport/link.hpp",
        "rendezvous/client.hpp", "trainer/include/rondo/t.hpp", "bench/table.hpp", "tests/support/catch.hpp"}) {
    if (path != header) sources.push_back({header, kSpdx + "#pragma once\n"});
  }
  sources.push_back({"proto/frame.proto", kSpdx});
  sources.push_back({path, kSpdx + "#pragma once\n" + lines + "\n"});
  return rondo::tree::violations(sources);
}

bool refused(const std::string& path, const std::string& lines) { return check(path, lines).size() == 1; }
bool accepted(const std::string& path, const std::string& lines) { return check(path, lines).empty(); }

}  // namespace

TEST_CASE("a layer includes only what the table allows") {
  CHECK(refused("kernels/a.cpp", "#include \"comm/base/env.hpp\""));
  CHECK(refused("kernels/a.cpp", "#include <fmt/format.h>"));
  CHECK(accepted("kernels/a.cpp", "#include \"kernels/reduce.hpp\"\n#include <vector>\n#include <sys/mman.h>"));
  CHECK(refused("comm/base/a.cpp", "#include \"kernels/reduce.hpp\""));
  CHECK(refused("comm/base/a.cpp", "#include \"comm/call/engine.hpp\""));
  CHECK(accepted("comm/base/a.cpp", "#include <rondo/error.hpp>\n#include <rondo/export.hpp>"));
  CHECK(refused("comm/a.cpp", "#include \"rendezvous/client.hpp\""));
  CHECK(refused("comm/a.cpp", "#include <boost/asio.hpp>"));
  CHECK(refused("comm/a.cpp", "#include <openssl/hmac.h>"));
  CHECK(accepted("comm/transport/a.cpp", "#include <boost/asio.hpp>\n#include \"comm/call/engine.hpp\""));
  CHECK(refused("rendezvous/a.cpp", "#include <rondo/communicator.hpp>"));
  CHECK(refused("rendezvous/a.cpp", "#include \"comm/call/engine.hpp\""));
  CHECK(accepted("rendezvous/a.cpp", "#include <rondo/store.hpp>\n#include \"comm/setup/authenticator.hpp\""));
  CHECK(accepted("rendezvous/a.cpp", "#include \"proto/frame.pb.h\"\n#include <google/protobuf/arena.h>"));
  CHECK(refused("comm/a.cpp", "#include \"proto/frame.pb.h\""));
  CHECK(refused("trainer/a.cpp", "#include \"comm/call/engine.hpp\""));
  CHECK(accepted("trainer/a.cpp", "#include <rondo/communicator.hpp>"));
  CHECK(refused("examples/a.cpp", "#include \"comm/call/engine.hpp\""));
  CHECK(refused("tools/a.cpp", "#include \"tests/support/catch.hpp\""));
  CHECK(refused("comm/a.cpp", "#include \"bench/table.hpp\""));
}

TEST_CASE("a public header includes only public headers and the standard library") {
  CHECK(refused("comm/include/rondo/a.hpp", "#include <fmt/format.h>"));
  CHECK(refused("rendezvous/include/rondo/a.hpp", "#include <boost/asio.hpp>"));
  CHECK(refused("comm/include/rondo/a.hpp", "#include \"comm/call/engine.hpp\""));
  CHECK(accepted("comm/include/rondo/a.hpp", "#include <span>\n#include <rondo/error.hpp>"));
}

TEST_CASE("spdlog, fibers and CUDA's headers are kept where they belong") {
  CHECK(refused("comm/base/a.cpp", "#include <spdlog/spdlog.h>"));
  CHECK(accepted("comm/base/log.cpp", "#include <spdlog/spdlog.h>"));
  CHECK(refused("kernels/a.cpp", "#include <boost/context/fiber.hpp>"));
  CHECK(refused("kernels/simt/a.cpp", "#include <boost/asio.hpp>"));
  CHECK(accepted("kernels/simt/a.cpp", "#include <boost/context/detail/fcontext.hpp>"));
  CHECK(refused("kernels/simt/a.cpp", "#include \"kernels/reduce.hpp\""));
  CHECK(refused("comm/a.cpp", "#include \"kernels/simt/lane_api.hpp\""));
  CHECK(accepted("kernels/a.cpp", "#include \"kernels/simt/lane_api.hpp\""));
  CHECK(refused("comm/a.cpp", "#include <cuda_runtime_api.h>"));
  CHECK(refused("kernels/cuda/api.hpp", "#include <cuda.h>"));
  CHECK(accepted("kernels/cuda/declarations.hpp", "#include <cuda_runtime_api.h>"));
  CHECK(accepted("comm/a.cpp", "#include \"kernels/cuda/api.hpp\""));
}

TEST_CASE("who uses fmt::join includes its header") {
  CHECK(refused("comm/a.cpp", "#include <fmt/format.h>\nauto a = fmt::join(b, c);"));
  CHECK(accepted("comm/a.cpp", "#include <fmt/ranges.h>\nauto a = fmt::join(b, c);"));
}

TEST_CASE("an include that leads back to its own file is found") {
  const auto found = rondo::tree::violations({
      {"kernels/a.hpp", kSpdx + "#pragma once\n#include \"kernels/b.hpp\"\n"},
      {"kernels/b.hpp", kSpdx + "#pragma once\n#include \"kernels/c.hpp\"\n"},
      {"kernels/c.hpp", kSpdx + "#pragma once\n#include \"kernels/a.hpp\"\n"},
  });
  REQUIRE(found.size() == 1);
  CHECK(found[0].find("kernels/a.hpp -> kernels/b.hpp -> kernels/c.hpp -> kernels/a.hpp") != std::string::npos);
}

TEST_CASE("a room does not come to include one that it knows nothing of") {
  const std::vector<Source> sources = {
      {"comm/node/board.hpp", kSpdx + "#pragma once\n"},
      {"comm/call/name.hpp", kSpdx + "#pragma once\n#include \"comm/node/board.hpp\"\n"},
      {"comm/device/launch/a.hpp", kSpdx + "#pragma once\n#include \"comm/call/name.hpp\"\n"},
      {"comm/device/setup/a.hpp", kSpdx + "#pragma once\n#include \"comm/call/name.hpp\"\n"},
  };
  const auto found = rondo::tree::violations(sources);
  REQUIRE(found.size() == 1);
  CHECK(found[0].find("comm/device/launch/a.hpp -> comm/call/name.hpp -> comm/node/board.hpp") != std::string::npos);
}

TEST_CASE("files without licence, include guard, row or target are found") {
  CHECK(rondo::tree::violations({{"comm/a.cpp", "int a;\n"}}).size() == 1);
  CHECK(rondo::tree::violations({{"tools/check", "#!/usr/bin/env bash\necho\n"}}).size() == 1);
  CHECK(rondo::tree::violations({{"tools/check", "#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\n"}}).empty());
  CHECK(rondo::tree::violations({{"comm/a.hpp", kSpdx + "int a;\n"}}).size() == 1);
  CHECK(rondo::tree::violations({{"kernels/a.cuh", kSpdx + "int a;\n"}}).size() == 1);
  CHECK(rondo::tree::violations({{"attic/a.cpp", kSpdx}}).size() == 1);
  CHECK(refused("comm/a.cpp", "#include \"comm/absent.hpp\""));
}

TEST_CASE("the table of layers has no cycle: a row names only rows above it") {
  std::vector<std::string_view> above;
  for (const auto& layer : rondo::tree::layers()) {
    for (const std::string_view entry : layer.ours) {
      if (!entry.ends_with('/') || entry.ends_with("/include/")) continue;
      CHECK(std::find(above.begin(), above.end(), entry) != above.end());
    }
    above.push_back(layer.folder);
  }
}

TEST_CASE("the repository keeps its own rules") {
  const auto sources = rondo::tree::read_tree(RONDO_SOURCE_DIR);
  REQUIRE(sources.size() > 30);
  std::string all;
  for (const std::string& violation : rondo::tree::violations(sources)) all += violation + "\n";
  INFO(all);
  CHECK(all.empty());
}
