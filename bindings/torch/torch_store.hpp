// SPDX-License-Identifier: Apache-2.0
// PyTorch's store as the library's, for ranks to meet in: no server and no port of our own.
#pragma once
#include <mutex>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <rondo/store.hpp>

namespace rondo::torch_backend {

// Any thread may call it. PyTorch's stores wait with the lock of a connection held, so waiting looks again and again.
class TorchStore final : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(std::string_view key, std::span<const std::byte> value) override;
  Bytes get(std::string_view key, Deadline deadline) override;
  std::optional<Bytes> try_get(std::string_view key) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override;
  bool erase(std::string_view key) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;
};

}  // namespace rondo::torch_backend
