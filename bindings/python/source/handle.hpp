// SPDX-License-Identifier: Apache-2.0
// What Python's objects hold: a communicator that several of them may share, and ways to call it.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <variant>

#include <rondo/rondo.hpp>

#include "bindings/python/source/request.hpp"

namespace rondo::python {

// Seconds as a number, or a datetime.timedelta; infinity waits for ever.
using Seconds = std::variant<double, std::chrono::duration<double>>;
std::chrono::milliseconds milliseconds_of(const Seconds& seconds);
std::chrono::milliseconds milliseconds_of(const std::optional<Seconds>& seconds);  // none: 0

// One communicator. Any thread may use it; close() ends the calls of other threads first.
class Handle {
 public:
  // As long as this lives nobody closes it. Error(invalid_argument) when it was closed or is being closed.
  class Use {
   public:
    explicit Use(Handle& handle);
    Communicator* operator->() const { return communicator_; }
    Communicator& operator*() const { return *communicator_; }

   private:
    std::shared_lock<std::shared_mutex> lock_;
    Communicator* communicator_;
  };

  explicit Handle(Communicator communicator);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();
  Use use() { return Use(*this); }
  Place place();
  // Gives up the GIL if it is held: engine threads may need it to end. Within a callback of such a thread it is left to
  // Python's main thread.
  void close();

 private:
  std::shared_mutex mutex_;
  Communicator communicator_;
};

// While one lives, this thread runs a callback of a Work.
class InCallback {
 public:
  InCallback();
  ~InCallback();
};
using HandlePtr = std::shared_ptr<Handle>;
void close_all();  // at the end of Python

// The ways to call: each has rank(), and run() of a Request.
struct Blocking {
  static constexpr bool kReturnsWhenDone = true;
  HandlePtr handle;
  void run(const Request& request);
};
struct Deadline {
  static constexpr bool kReturnsWhenDone = true;
  HandlePtr handle;
  std::chrono::milliseconds timeout;
  void run(const Request& request);
};
struct Starting {
  static constexpr bool kReturnsWhenDone = false;
  HandlePtr handle;
  std::chrono::milliseconds timeout;
  Work run(const Request& request);
};
struct Recording {
  static constexpr bool kReturnsWhenDone = false;
  HandlePtr handle;
  std::unique_ptr<Group> group;
  std::vector<std::shared_ptr<Borrowed>> borrowed;
  void run(const Request& request);
  void end();
  Work start();
};

// Each file binds its part; errors first.
void bind_errors(nb::module_& module);
void bind_values(nb::module_& module);
void bind_work(nb::module_& module);
void bind_store(nb::module_& module);
void bind_communicator(nb::module_& module);

// A Store, or any object with its functions; None: null. To be let go with the GIL.
std::shared_ptr<Store> store_of(nb::object given);
// A ReduceOp, or the name of one.
ReduceOp reduce_op_of(nb::handle given);
// A null pointer: None.
nb::object to_python(const std::exception_ptr& error);

}  // namespace rondo::python
