// SPDX-License-Identifier: Apache-2.0
#include "bindings/python/source/buffer.hpp"

#include <nanobind/stl/pair.h>

#include <optional>
#include <string_view>
#include <utility>

namespace rondo::python {
namespace {

[[noreturn]] void refuse(PyObject* type, const std::string& sentence) {
  PyErr_SetString(type, sentence.c_str());
  throw nb::python_error();
}

std::string type_of(nb::handle object) { return nb::cast<std::string>(nb::handle(object.type()).attr("__name__")); }

Element moved(std::size_t bytes, std::string name) {
  return {.dtype = DataType::u8, .times = bytes, .reduces = false, .name = std::move(name)};
}

std::optional<Element> integer(bool is_signed, std::size_t bytes) {
  switch (bytes) {
    case 1:
      return Element{.dtype = is_signed ? DataType::i8 : DataType::u8};
    case 2:
      return moved(2, is_signed ? "int16" : "uint16");
    case 4:
      return Element{.dtype = is_signed ? DataType::i32 : DataType::u32};
    case 8:
      return Element{.dtype = is_signed ? DataType::i64 : DataType::u64};
    default:
      return std::nullopt;
  }
}

std::optional<Element> floating(std::size_t bytes) {
  switch (bytes) {
    case 2:
      return Element{.dtype = DataType::f16};
    case 4:
      return Element{.dtype = DataType::f32};
    case 8:
      return Element{.dtype = DataType::f64};
    default:
      return moved(bytes, "a float of " + std::to_string(bytes) + " bytes");
  }
}

// Of the struct module's formats those of one number.
std::optional<Element> element_of(std::string_view format, std::size_t bytes) {
  constexpr std::string_view kOwnOrder = "@=<|", kIntegers = "bhilqn", kNaturals = "BcHILQN", kFloats = "efdg";
  if (!format.empty() && kOwnOrder.find(format.front()) != std::string_view::npos) format.remove_prefix(1);
  if (format == "?") return moved(1, "bool");
  if (format.size() == 2 && format.front() == 'Z') return moved(bytes, "complex");
  if (format.size() != 1) return std::nullopt;
  if (kIntegers.find(format.front()) != std::string_view::npos) return integer(true, bytes);
  if (kNaturals.find(format.front()) != std::string_view::npos) return integer(false, bytes);
  if (kFloats.find(format.front()) != std::string_view::npos) return floating(bytes);
  return std::nullopt;
}

std::optional<Element> element_of(dlpack::DataType type) {
  if (type.lanes != 1 || type.bits % 8 != 0) return std::nullopt;
  const std::size_t bytes = type.bits / 8U;
  switch (type.code) {
    case dlpack::kInt:
      return integer(true, bytes);
    case dlpack::kUInt:
      return integer(false, bytes);
    case dlpack::kFloat:
      return floating(bytes);
    case dlpack::kBfloat:
      return bytes == 2 ? std::optional(Element{.dtype = DataType::bf16}) : std::nullopt;
    case dlpack::kComplex:
      return moved(bytes, "complex");
    case dlpack::kBool:
      return moved(bytes, "bool");
    case dlpack::kFloat8E4M3Fn:
      return Element{.dtype = DataType::f8e4m3};
    case dlpack::kFloat8E5M2:
      return Element{.dtype = DataType::f8e5m2};
    default:
      return std::nullopt;
  }
}

bool is_compact(const dlpack::Tensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.dimensions - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::string name_of_device(dlpack::Device device) {
  if (device.type == dlpack::kCpu) return "the CPU";
  if (device.type == dlpack::kCuda) return "CUDA device " + std::to_string(device.index);
  return "a device of DLPack's type " + std::to_string(device.type);
}

void check_device(dlpack::Device found, const std::string& what, Device wanted) {
  const bool host = found.type == dlpack::kCpu || found.type == dlpack::kCudaHost || found.type == dlpack::kRocmHost ||
                    found.type == dlpack::kCudaManaged;
  if (wanted.kind != Device::Kind::cuda) {
    if (host) return;
    refuse(PyExc_ValueError, what + " lies on " + name_of_device(found) + ", and the communicator is on the CPU");
  }
  if (found.type == dlpack::kCudaHost || found.type == dlpack::kCudaManaged) return;
  if (found.type == dlpack::kCuda && found.index == wanted.index) return;
  refuse(PyExc_ValueError, what + " lies on " + name_of_device(found) + ", and the communicator is on CUDA device " +
                               std::to_string(wanted.index));
}

// The capsule of object.__dlpack__(), asked for as newer and as older libraries know it.
nb::object capsule_of(nb::handle object, bool on_cuda, const std::string& what) {
  const nb::object method = object.attr("__dlpack__");
  nb::dict arguments;
  if (on_cuda) arguments["stream"] = -1;  // the call goes on a stream of the caller's choice: nothing to wait for
  try {
    try {
      nb::dict newer(arguments);
      newer["max_version"] = nb::make_tuple(1, 1);
      return method(**newer);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
    return method(**arguments);
  } catch (nb::python_error& error) {
    refuse(PyExc_TypeError, what + ": " + nb::cast<std::string>(nb::str(error.value())));
  }
}

}  // namespace

Buffer::Buffer(nb::handle object, const std::string& what, bool written, Device device) {
  try {
    const bool on_cuda = device.kind == Device::Kind::cuda;
    if (!on_cuda && PyObject_CheckBuffer(object.ptr()) != 0 && take_view(object, what, written)) return;
    if (nb::hasattr(object, "__dlpack__")) {
      take_tensor(object, what, written, device);
      return;
    }
    if (PyObject_CheckBuffer(object.ptr()) != 0) {
      refuse(on_cuda ? PyExc_ValueError : PyExc_TypeError,
             what + (on_cuda ? " lies on the CPU, and the communicator is on a CUDA device"
                             : ": its buffer cannot be had"));
    }
    refuse(PyExc_TypeError, what + " is " + type_of(object) + ", which has neither the buffer protocol nor DLPack");
  } catch (...) {
    release();
    throw;
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(other.data_),
      count_(other.count_),
      element_(std::move(other.element_)),
      view_(std::exchange(other.view_, Py_buffer{})),
      managed_(std::exchange(other.managed_, nullptr)),
      versioned_(std::exchange(other.versioned_, nullptr)) {}

Buffer::~Buffer() { release(); }

void Buffer::release() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
  if (managed_ != nullptr && managed_->deleter != nullptr) managed_->deleter(managed_);
  if (versioned_ != nullptr && versioned_->deleter != nullptr) versioned_->deleter(versioned_);
  view_ = {};
  managed_ = nullptr;
  versioned_ = nullptr;
}

// False: the object has the protocol and cannot describe its elements by it, as numpy's extension types cannot.
bool Buffer::take_view(nb::handle object, const std::string& what, bool written) {
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_FULL_RO) != 0) {
    view_ = {};
    PyErr_Clear();
    return false;
  }
  if (written && view_.readonly != 0) refuse(PyExc_ValueError, what + " is read-only");
  if (PyBuffer_IsContiguous(&view_, 'C') == 0) {
    refuse(PyExc_ValueError, what + " is not contiguous: pass a contiguous copy of it");
  }
  const std::string_view format = view_.format == nullptr ? "B" : view_.format;
  const auto element = element_of(format, static_cast<std::size_t>(view_.itemsize));
  if (!element)
    refuse(PyExc_TypeError,
           what + " has elements of format '" + std::string(format) + "', which the library does not know");
  element_ = *element;
  data_ = view_.buf;
  count_ = static_cast<std::size_t>(view_.len / view_.itemsize);
  return true;
}

void Buffer::take_tensor(nb::handle object, const std::string& what, bool written, Device device) {
  const auto place = nb::cast<std::pair<int, int>>(nb::tuple(object.attr("__dlpack_device__")()));
  check_device({place.first, place.second}, what, device);
  const nb::object capsule = capsule_of(object, place.first == dlpack::kCuda, what);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    versioned_ = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    if (versioned_->major != 1) {
      refuse(PyExc_TypeError, what + " speaks DLPack " + std::to_string(versioned_->major) + ", and this module 1");
    }
    if (written && (versioned_->flags & dlpack::kReadOnly) != 0) refuse(PyExc_ValueError, what + " is read-only");
    return read_tensor(versioned_->tensor, what);
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") == 0) refuse(PyExc_TypeError, what + ": __dlpack__ gave no tensor");
  managed_ = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  read_tensor(managed_->tensor, what);
}

void Buffer::read_tensor(const dlpack::Tensor& tensor, const std::string& what) {
  const auto element = element_of(tensor.dtype);
  if (!element) {
    refuse(PyExc_TypeError, what + " has elements of DLPack's type " + std::to_string(tensor.dtype.code) + " with " +
                                std::to_string(tensor.dtype.bits) + " bits, which the library does not know");
  }
  if (!is_compact(tensor)) refuse(PyExc_ValueError, what + " is not contiguous: pass a contiguous copy of it");
  element_ = *element;
  data_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
  count_ = 1;
  for (std::int32_t i = 0; i < tensor.dimensions; ++i) count_ *= static_cast<std::size_t>(tensor.shape[i]);
}

}  // namespace rondo::python
