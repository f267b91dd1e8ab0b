// SPDX-License-Identifier: Apache-2.0
// Where a rank may write why it fails, as torchrun's ranks do: JSON in TORCHELASTIC_ERROR_FILE. It lies in memory, so
// nothing is left of it when the launcher is gone.
#pragma once
#include <string>
#include <string_view>

#include "comm/base/fd.hpp"

namespace rondo::launcher {

// The first line of the message in it, for a terminal; empty: there is none that can be read.
std::string message_in(std::string_view error_file);

class ErrorFile {
 public:
  ErrorFile();
  std::string path() const;     // for this process's children; empty: there is none
  std::string message() const;  // the first line of what a rank wrote; empty: nothing that can be read

 private:
  Fd file_;
};

}  // namespace rondo::launcher
