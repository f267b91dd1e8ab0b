// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/error_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/base/plain_text.hpp"

namespace rondo::launcher {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20, kMostShown = 500;

// {"message": "…"}, or with more beside the text: {"message": {"message": "…", "extraInfo": …}}.
std::string text_in(const nlohmann::json& json) {
  const auto outer = json.find("message");
  if (outer == json.end()) return "";
  if (outer->is_string()) return outer->get<std::string>();
  const auto inner = outer->find("message");
  return inner != outer->end() && inner->is_string() ? inner->get<std::string>() : "";
}

}  // namespace

// A rank may write anything.
std::string message_in(std::string_view error_file) {
  const auto json = nlohmann::json::parse(error_file, nullptr, false);
  if (!json.is_object()) return "";
  const std::string message = text_in(json);
  return plain_text(std::string_view(message).substr(0, message.find('\n')), kMostShown);
}

// Where the system has no such files, ranks get none.
ErrorFile::ErrorFile() : file_(::memfd_create("rondorun-error", MFD_CLOEXEC)) {}

std::string ErrorFile::path() const { return file_ ? fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get()) : ""; }

std::string ErrorFile::message() const {
  std::string text(kMostBytes, '\0');
  const ssize_t got = file_ ? ::pread(file_.get(), text.data(), text.size(), 0) : 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return message_in(text);
}

}  // namespace rondo::launcher
