// SPDX-License-Identifier: Apache-2.0
// The memory of a Python object, borrowed: by the buffer protocol where there is one, else by DLPack.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <string>

#include <rondo/communicator.hpp>

#include "bindings/python/source/dlpack.hpp"

namespace rondo::python {

namespace nb = nanobind;

// What the library calls an element, and what Python does.
struct Element {
  DataType dtype = DataType::u8;
  std::size_t times = 1;  // elements of dtype in one of Python's: types that the library only moves are bytes to it
  bool reduces = true;    // false: moved, never reduced
  std::string name{};     // "int16", for messages
  bool operator==(const Element& other) const { return dtype == other.dtype && times == other.times; }
};

class Buffer {
 public:
  // TypeError or ValueError, one sentence that names `what`: no memory, of another device than `device`, of unknown
  // elements, not contiguous, or, where it is to be written, read-only.
  Buffer(nb::handle object, const std::string& what, bool written, Device device);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();  // with the GIL

  void* data() const { return data_; }
  std::size_t count() const { return count_; }  // of Python's elements
  const Element& element() const { return element_; }

 private:
  bool take_view(nb::handle object, const std::string& what, bool written);
  void take_tensor(nb::handle object, const std::string& what, bool written, Device device);
  void read_tensor(const dlpack::Tensor& tensor, const std::string& what);
  void release();

  void* data_ = nullptr;
  std::size_t count_ = 0;
  Element element_;
  Py_buffer view_{};  // obj null: not by the buffer protocol
  dlpack::Managed* managed_ = nullptr;
  dlpack::ManagedVersioned* versioned_ = nullptr;
};

}  // namespace rondo::python
