// SPDX-License-Identifier: Apache-2.0
// How fast folds are: bytes of one output per second. Run by hand: kernels_test "[.timing]".
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "kernels/reduce_table.hpp"
#include "tests/kernels/tables.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using kernels::ReduceTable;
using kernels::Stores;
using test::tables;

namespace {

struct Shape {
  DataType dtype;
  ReduceOp::Kind op;
  std::size_t bytes;  // of an output
  int inputs = 2;
  int outputs = 1;
  Stores stores = Stores::plain;
  std::size_t misaligned = 0;  // every pointer, by so much times its number
};

// Buffers of one thread, filled with small numbers: neither zeros, which some processors store faster, nor denormals.
class Work {
 public:
  explicit Work(const Shape& shape) : shape_(shape) {
    const int buffers = shape.inputs + shape.outputs;
    memory_.resize(static_cast<std::size_t>(buffers) * (shape.bytes + kGap) + 64);
    unsigned char* base = memory_.data() + (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64);
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = kBytes[i % sizeof(kBytes)];
    for (int i = 0; i < buffers; ++i) {
      const auto place =
          static_cast<std::size_t>(i) * (shape.bytes + kGap) + shape.misaligned * static_cast<std::size_t>(i + 1);
      if (i < shape.inputs) in_.push_back(base + place);
      if (i >= shape.inputs) out_.push_back(base + place);
    }
  }

  double seconds(const ReduceTable& table, int times) {
    const auto fold = table.rows[static_cast<int>(shape_.dtype)].fold[shape_.op];
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
      fold({.out = out_.data(),
            .outputs = shape_.outputs,
            .in = in_.data(),
            .inputs = shape_.inputs,
            .count = shape_.bytes / size_of(shape_.dtype),
            .divisor = static_cast<double>(shape_.inputs),
            .stores = shape_.stores});
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
  }

 private:
  static constexpr std::size_t kGap = 4096 + 256;  // keeps the buffers off each other's cache sets
  static constexpr unsigned char kBytes[] = {0x38, 0x39, 0x3a, 0x3b, 0x3c};
  Shape shape_;
  std::vector<unsigned char> memory_;
  std::vector<void*> out_;
  std::vector<const void*> in_;
};

// Median of seven, all threads together.
double gigabytes_per_second(const ReduceTable& table, const Shape& shape, int threads = 1) {
  const int times = static_cast<int>(std::max<std::size_t>(1, (4 << 20) / shape.bytes));
  std::vector<double> speeds;
  std::vector<Work> works;
  for (int t = 0; t < threads; ++t) works.emplace_back(shape);
  for (int repeat = 0; repeat < 7; ++repeat) {
    std::vector<double> seconds(works.size());
    std::vector<std::thread> others;
    for (std::size_t t = 1; t < works.size(); ++t) {
      others.emplace_back([&, t] { seconds[t] = works[t].seconds(table, times); });
    }
    seconds[0] = works[0].seconds(table, times);
    for (auto& other : others) other.join();
    double sum = 0;
    for (const double s : seconds) sum += static_cast<double>(shape.bytes) / s / 1e9;
    speeds.push_back(sum);
  }
  std::nth_element(speeds.begin(), speeds.begin() + 3, speeds.end());
  return speeds[3];
}

constexpr std::size_t kInL1 = 8 << 10, kInL2 = 192 << 10, kInMemory = 64 << 20;

}  // namespace

TEST_CASE("speed of every dtype and operator in cache", "[.timing]") {
  for (const auto* table : tables()) {
    for (const auto& row : table->rows) {
      std::printf("%-8s %-6s", table->name, name_of(row.dtype).data());
      for (int op = 0; op < kReduceOpCount; ++op) {
        if (row.fold[op] == nullptr) continue;
        const Shape shape = {.dtype = row.dtype, .op = static_cast<ReduceOp::Kind>(op), .bytes = kInL1};
        std::printf(" %s %.1f", name_of(shape.op).data(), gigabytes_per_second(*table, shape));
      }
      std::printf("\n");
    }
  }
}

TEST_CASE("speed of sums in caches and memory", "[.timing]") {  // of the best instruction set; in memory none matters
  std::printf("%-8s %-6s %6s %6s | %6s %6s | two threads %6s %6s\n", "", "", "L1", "L2", "plain", "stream", "plain",
              "stream");
  const auto* table = tables().back();
  for (const auto& row : table->rows) {
    Shape shape = {.dtype = row.dtype, .op = ReduceOp::sum, .bytes = kInL1};
    std::printf("%-8s %-6s %6.1f", table->name, name_of(row.dtype).data(), gigabytes_per_second(*table, shape));
    shape.bytes = kInL2;
    std::printf(" %6.1f", gigabytes_per_second(*table, shape));
    shape.bytes = kInMemory;
    for (const int threads : {1, 2}) {
      for (const Stores stores : {Stores::plain, Stores::streaming}) {
        shape.stores = stores;
        std::printf(" %6.1f", gigabytes_per_second(*table, shape, threads));
      }
    }
    std::printf("\n");
  }
}

TEST_CASE("speed by inputs and outputs and alignment", "[.timing]") {
  for (const DataType dtype : {DataType::f32, DataType::bf16}) {
    for (const std::size_t bytes : {kInL1, kInL2, kInMemory}) {
      for (const int inputs : {1, 2, 3, 4, 8, 16}) {
        std::printf("%s %zu KiB, %d inputs:", name_of(dtype).data(), bytes >> 10, inputs);
        for (const int outputs : {1, 2}) {
          for (const Stores stores : {Stores::plain, Stores::streaming}) {
            for (const std::size_t misaligned : {0, 4}) {
              const Shape shape = {.dtype = dtype,
                                   .op = ReduceOp::sum,
                                   .bytes = bytes,
                                   .inputs = inputs,
                                   .outputs = outputs,
                                   .stores = stores,
                                   .misaligned = misaligned};
              std::printf(" %s%s%d %.1f", stores == Stores::plain ? "p" : "s", misaligned == 0 ? "a" : "u", outputs,
                          gigabytes_per_second(*tables().back(), shape));
            }
          }
        }
        std::printf("\n");
      }
    }
  }
}

TEST_CASE("time of the smallest folds", "[.timing]") {
  for (const auto& row : tables().back()->rows) {
    std::printf("%-6s", name_of(row.dtype).data());
    alignas(64) unsigned char a[128] = {0x38}, b[128] = {0x39};
    for (const std::size_t count : {1, 2, 4, 8, 16}) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 100000; ++i) kernels::fold_pair(row.fold[ReduceOp::sum], a, a, b, count);
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
      std::printf(" %zu: %.1f ns", count, took.count() / 100000);
    }
    std::printf("\n");
  }
}
