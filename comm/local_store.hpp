// SPDX-License-Identifier: Apache-2.0
// A Store inside one process: worlds of one, ranks as threads, tests.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>

#include <rondo/store.hpp>

namespace rondo {

class LocalStore final : public Store {
 public:
  void set(std::string_view key, std::span<const std::byte> value) override;
  Bytes get(std::string_view key, Deadline deadline) override;
  std::optional<Bytes> try_get(std::string_view key) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override;
  bool erase(std::string_view key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes, std::less<>> values_;
};

}  // namespace rondo
