// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/torch_store.hpp"

#include <algorithm>
#include <thread>

#include <rondo/error.hpp>

namespace rondo::torch_backend {
namespace {

using Raw = std::vector<std::uint8_t>;

Raw raw_of(std::span<const std::byte> value) {
  const auto* const data = reinterpret_cast<const std::uint8_t*>(value.data());
  return {data, data + value.size()};
}
Store::Bytes bytes_of(const Raw& raw) {
  const auto* const data = reinterpret_cast<const std::byte*>(raw.data());
  return {data, data + raw.size()};
}

// What the store throws is one of ours, and says which key it was about.
template <class F>
auto told(std::string_view key, F&& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    throw Error(ErrorCode::peer_lost, "torch.distributed's store failed at '" + std::string(key) +
                                          "': " + std::string(error.what()).substr(0, 400));
  }
}

}  // namespace

void TorchStore::set(std::string_view key, std::span<const std::byte> value) {
  const std::lock_guard lock(mutex_);
  told(key, [&] { store_->set(std::string(key), raw_of(value)); });
}

// By looking: wait() holds the connection, and logs every time that it ends in vain.
Store::Bytes TorchStore::get(std::string_view key, Deadline deadline) {
  constexpr std::chrono::milliseconds kLongest{20};
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kLongest)) {
    if (auto found = try_get(key)) return std::move(*found);
    if (std::chrono::steady_clock::now() >= deadline)
      throw Error(ErrorCode::timeout, "'" + std::string(key) + "' did not come into the store in time");
    std::this_thread::sleep_for(pause);
  }
}

std::optional<Store::Bytes> TorchStore::try_get(std::string_view key) {
  const std::lock_guard lock(mutex_);
  return told(key, [&]() -> std::optional<Bytes> {
    if (!store_->check({std::string(key)})) return std::nullopt;
    return bytes_of(store_->get(std::string(key)));
  });
}

std::int64_t TorchStore::add(std::string_view key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  return told(key, [&] { return store_->add(std::string(key), amount); });
}

// An empty expectation means an absent key to PyTorch's stores, too; an empty value is none that we write.
bool TorchStore::compare_and_set(std::string_view key, std::optional<Bytes> expected,
                                 std::span<const std::byte> desired) {
  const std::lock_guard lock(mutex_);
  return told(key, [&] {
    const Raw before = expected ? raw_of(*expected) : Raw{}, after = raw_of(desired);
    if (!expected && store_->check({std::string(key)})) return false;
    return store_->compareSet(std::string(key), before, after) == after;
  });
}

bool TorchStore::erase(std::string_view key) {
  const std::lock_guard lock(mutex_);
  return told(key, [&] { return store_->deleteKey(std::string(key)); });
}

}  // namespace rondo::torch_backend
