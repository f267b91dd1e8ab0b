// SPDX-License-Identifier: Apache-2.0
// One call of a verb from Python: the Call, and what it borrows.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "bindings/python/source/buffer.hpp"

namespace rondo::python {

// What a call uses until it is done. It may be let go in any thread: Python's memory is given back with the GIL, later.
class Borrowed {
 public:
  Borrowed() = default;
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed();

  const Buffer& add(Buffer buffer) { return buffers_.emplace_back(std::move(buffer)); }
  void reserve(std::size_t buffers) { buffers_.reserve(buffers); }
  std::vector<std::size_t> send_counts, recv_counts;
  int source = -1;  // of a receive that is done

 private:
  std::vector<Buffer> buffers_;
};

// Gives back what calls that are done have let go. With the GIL; nothing to do is nearly free.
void give_back_borrowed();

using Counts = std::optional<std::vector<std::size_t>>;

// A verb's arguments as Python gives them: none where a rank has none.
struct Arguments {
  Collective collective{};
  nb::object send{}, recv{};
  Counts send_counts{}, recv_counts{};
  ReduceOp op = ReduceOp::sum;
  int root = -1;
  int tag = 0;
  std::uintptr_t stream = 0;
};

struct Place {  // of the rank that calls
  int rank = 0;
  int world_size = 1;
  Device device{};
};

struct Request {
  Call call;
  std::shared_ptr<Borrowed> borrowed;
};
// TypeError, ValueError or Error(invalid_argument) in one sentence; nothing has been communicated.
Request make_request(const Arguments& arguments, const Place& place);

}  // namespace rondo::python
