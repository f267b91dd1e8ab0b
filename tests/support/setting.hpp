// SPDX-License-Identifier: Apache-2.0
// A variable of the environment, for as long as one test. Not while other threads look at it.
#pragma once
#include <cstdlib>
#include <string>

namespace rondo::test {

class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {  // empty: stays unset
    if (!value.empty()) ::setenv(name, value.c_str(), 1);
  }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;

 private:
  const char* name_;
};

}  // namespace rondo::test
