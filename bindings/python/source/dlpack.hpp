// SPDX-License-Identifier: Apache-2.0
// DLPack's structures as they lie in memory (versions 0.x and 1.x): how array libraries lend their memory.
#pragma once
#include <cstdint>

namespace rondo::python::dlpack {

struct Device {
  std::int32_t type;
  std::int32_t index;
};
inline constexpr std::int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kRocmHost = 11, kCudaManaged = 13;

struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
enum Code : std::uint8_t {
  kInt = 0,
  kUInt,
  kFloat,
  kBfloat = 4,
  kComplex,
  kBool,
  kFloat8E4M3Fn = 10,
  kFloat8E5M2 = 12
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: compact and in C order
  std::uint64_t byte_offset;
};

struct Managed {  // in capsules named "dltensor"
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {  // in capsules named "dltensor_versioned"
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
inline constexpr std::uint64_t kReadOnly = 1;  // of flags

}  // namespace rondo::python::dlpack
