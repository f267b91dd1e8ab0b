// SPDX-License-Identifier: Apache-2.0
// What a rondorun with --hosts orders one that it starts by ssh to do, as bytes: how many, a colon, and all its parts,
// each behind its own length.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::launcher {

struct Order {
  std::string version, secret, folder;
  std::vector<std::string> environment;  // NAME=value, beside what the host has
  std::vector<std::string> words;        // of the command line
};

std::string order_text(const Order& order);

// Error(corrupt_message): that is no order.
std::size_t order_bytes(std::string_view size);  // of "123:", with which it begins
Order order_of(std::string_view parts);          // what follows

}  // namespace rondo::launcher
