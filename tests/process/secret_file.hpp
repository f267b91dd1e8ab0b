// SPDX-License-Identifier: Apache-2.0
// A job's secret for several launchers; gone with the test.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/process/running.hpp"

namespace rondo::test {

struct SecretFile {
  std::filesystem::path path;
  explicit SecretFile(const std::string& name = "job") {
    path = std::filesystem::temp_directory_path() / ("rondo-test-secret-" + name + std::to_string(::getpid()));
    std::filesystem::remove(path);
    if (run(rondorun({"--new-secret", path})).code != 0) throw std::runtime_error("cannot make a secret");
  }
  ~SecretFile() { std::filesystem::remove(path); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
};

}  // namespace rondo::test
