// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/plain_text.hpp"

namespace rondo {
namespace {

// A peer's code may be of a later version, or no code at all.
ErrorCode known(ErrorCode code) {
  return code >= ErrorCode::invalid_argument && code <= ErrorCode::corrupt_message ? code : ErrorCode::system;
}

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "rondo"; }
  std::string message(int code) const override {
    switch (static_cast<ErrorCode>(code)) {
      case ErrorCode::invalid_argument:
        return "invalid argument";
      case ErrorCode::mismatch:
        return "mismatch";
      case ErrorCode::timeout:
        return "timeout";
      case ErrorCode::peer_lost:
        return "peer lost";
      case ErrorCode::aborted:
        return "aborted";
      case ErrorCode::unsupported:
        return "unsupported";
      case ErrorCode::system:
        return "system error";
      case ErrorCode::cuda:
        return "CUDA error";
      case ErrorCode::corrupt_message:
        return "corrupt message";
    }
    return "unknown error";
  }
};

}  // namespace

const std::error_category& error_category() {
  static const Category category;
  return category;
}

Error::Error(ErrorCode code, const std::string& sentence, int culprit)
    : Error(code, sentence, culprit, culprit < 0 ? std::vector<int>{} : std::vector<int>{culprit}) {}
Error::Error(ErrorCode code, const std::string& sentence, int culprit, std::vector<int> culprits)
    : std::system_error(make_error_code(known(code))),
      sentence_(
          plain_text(sentence.empty() ? std::system_error::code().message() : sentence)),  // a peer's may be empty
      culprit_(culprit),
      culprits_(std::move(culprits)) {}
Error::~Error() = default;
const char* Error::what() const noexcept { return sentence_.c_str(); }

}  // namespace rondo
