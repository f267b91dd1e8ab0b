// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include <rondo/error.hpp>

namespace rondo::launcher {
namespace {

constexpr std::size_t kLongestOrder = std::size_t{1} << 24;

std::string packed(const std::vector<std::string>& texts) {
  std::string all = fmt::format("{}:", texts.size());
  for (const std::string& text : texts) all += fmt::format("{}:{}", text.size(), text);
  return all;
}

[[noreturn]] void refuse_order() {
  throw Error(ErrorCode::corrupt_message, "what comes on standard input is no order of rondorun's");
}

class Unpacked {
 public:
  explicit Unpacked(std::string_view text) : text_(text) {}
  std::size_t number() {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc{} || end == text_.data() + text_.size() || *end != ':') refuse_order();
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()) + 1);
    return value;
  }
  std::string text() {
    const std::size_t bytes = number();
    if (bytes > text_.size()) refuse_order();
    const std::string result(text_.substr(0, bytes));
    text_.remove_prefix(bytes);
    return result;
  }
  std::vector<std::string> texts() {
    const std::size_t count = number();
    if (count > text_.size()) refuse_order();
    std::vector<std::string> result;
    while (result.size() < count) result.push_back(text());
    return result;
  }
  bool empty() const { return text_.empty(); }

 private:
  std::string_view text_;
};

// What setenv() takes.
bool is_variable(const std::string& entry) {
  const auto equals = entry.find('=');
  return equals != std::string::npos && equals != 0 && entry.find('\0') == std::string::npos;
}

}  // namespace

std::string order_text(const Order& order) {
  std::string text;
  for (const auto* part : {&order.version, &order.secret, &order.folder})
    text += fmt::format("{}:{}", part->size(), *part);
  text += packed(order.environment) + packed(order.words);
  return fmt::format("{}:{}", text.size(), text);
}

std::size_t order_bytes(std::string_view size) {
  const std::size_t bytes = Unpacked(size).number();
  if (bytes > kLongestOrder) refuse_order();
  return bytes;
}

Order order_of(std::string_view parts) {
  Unpacked rest(parts);
  Order order{.version = rest.text(), .secret = {}, .folder = {}, .environment = {}, .words = {}};
  order.secret = rest.text();
  order.folder = rest.text();
  order.environment = rest.texts();
  order.words = rest.texts();
  if (!rest.empty() || !std::all_of(order.environment.begin(), order.environment.end(), is_variable)) refuse_order();
  return order;
}

}  // namespace rondo::launcher
