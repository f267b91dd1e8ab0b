// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library. The code says what the caller can do about it; the message is one sentence
// that names rank, peer, collective and sequence number where they apply.
#pragma once
#include <string>
#include <system_error>
#include <vector>

#include <rondo/export.hpp>

namespace rondo {

// What the caller can do about an Error.
enum class ErrorCode {
  invalid_argument = 1,  // this call is wrong on this rank alone; the communicator goes on
  mismatch,              // ranks called different things; the communicator has failed
  timeout,               // a deadline passed; the message says who is missing
  peer_lost,             // a rank's process or connection is gone
  aborted,               // abort() was called, here or on another rank
  unsupported,           // not in this build or on this machine
  system,                // the operating system refused; carries its reason
  cuda,                  // the CUDA runtime refused
  corrupt_message,       // bytes that no peer of ours would have sent
};

// For std::error_code.
RONDO_API const std::error_category& error_category();
inline std::error_code make_error_code(ErrorCode code) { return {static_cast<int>(code), error_category()}; }

// What every function of this library throws, but std::bad_alloc.
class RONDO_API Error : public std::system_error {
 public:
  // `culprit`: the rank the message blames, -1 when there is none.
  Error(ErrorCode code, const std::string& sentence, int culprit = -1);
  // `culprits`: all that it blames, in order. `culprit`: the first of them, or -1 when it is one of them, and nobody
  // knows which.
  Error(ErrorCode code, const std::string& sentence, int culprit, std::vector<int> culprits);
  ~Error() override;
  ErrorCode error_code() const { return static_cast<ErrorCode>(code().value()); }  // what the caller can do about it
  // A rank, the first of several. -1: nobody's fault; or that of one of culprits(), and nobody knows of which: two
  // ranks called different things, and there are no others to ask.
  int culprit() const { return culprit_; }
  // All ranks that the message blames, in order, at most 16 of them when other ranks may have told of it; empty:
  // nobody's fault.
  const std::vector<int>& culprits() const { return culprits_; }
  const char* what() const noexcept override;  // the sentence alone

 private:
  std::string sentence_;
  int culprit_;
  std::vector<int> culprits_;
};

}  // namespace rondo

template <>
struct std::is_error_code_enum<rondo::ErrorCode> : std::true_type {};
