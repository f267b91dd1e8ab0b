// SPDX-License-Identifier: Apache-2.0
// What a Window on the CPU holds: a block of the node's memory that peers reach too, or private memory where they
// could not be given it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "comm/node/memory/windows.hpp"
#include "comm/transport/memory.hpp"

namespace rondo::detail {
class CommunicatorImpl;
}

namespace rondo::comm {

class HostWindow {
 public:
  HostWindow() = default;
  HostWindow(Mapping memory, std::size_t lead) : private_(std::move(memory)), data_(private_.data() + lead) {}
  HostWindow(std::shared_ptr<Windows> windows, std::uint32_t id, std::byte* data)
      : windows_(std::move(windows)), id_(id), data_(data) {}
  HostWindow(HostWindow&& other) noexcept
      : private_(std::move(other.private_)),
        windows_(std::move(other.windows_)),
        id_(other.id_),
        data_(std::exchange(other.data_, nullptr)) {}
  HostWindow& operator=(HostWindow&& other) noexcept {
    std::swap(private_, other.private_);
    std::swap(windows_, other.windows_);
    std::swap(id_, other.id_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~HostWindow() {
    if (windows_) windows_->release(id_);
  }

  std::byte* data() const { return data_; }

 private:
  Mapping private_;
  std::shared_ptr<Windows> windows_;  // not null: data_ lies in its window id_
  std::uint32_t id_ = 0;
  std::byte* data_ = nullptr;
};

// Collective; all ranks ask for the same. Zeroed, its pages present. Where the ranks of a node cannot share it, one
// line in the log says why, and each has its own. Throws the communicator's failure; system: there is no memory.
HostWindow allocate_on_host(detail::CommunicatorImpl& impl, std::size_t bytes);

}  // namespace rondo::comm
