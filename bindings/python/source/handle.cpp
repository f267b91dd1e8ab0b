// SPDX-License-Identifier: Apache-2.0
#include "bindings/python/source/handle.hpp"

#include <cmath>
#include <mutex>
#include <set>

#include "bindings/python/source/interrupt.hpp"

namespace rondo::python {
namespace {

// Work that owns what it borrowed until it is done, whoever drops it.
void keep_until_done(Work& work, std::vector<std::shared_ptr<Borrowed>> borrowed) {
  work.on_done([kept = std::move(borrowed)](const std::exception_ptr&) mutable { kept.clear(); });
}

// Never destroyed: handles may outlive the module.
struct Open {
  std::mutex mutex;
  std::set<Handle*> handles;
};
Open& open_handles() {
  static auto& the = *new Open;
  return the;
}

}  // namespace

std::chrono::milliseconds milliseconds_of(const Seconds& seconds) {
  const double value = std::visit(
      [](const auto& given) {
        if constexpr (std::is_same_v<std::decay_t<decltype(given)>, double>)
          return given;
        else
          return given.count();
      },
      seconds);
  if (std::isnan(value)) throw Error(ErrorCode::invalid_argument, "a timeout that is not a number");
  if (value * 1000 >= 9e18) return std::chrono::milliseconds::max();
  if (value <= 0)
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::fmax(std::floor(value * 1000), -9e18)));
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(value * 1000)));  // a little is not nothing
}

std::chrono::milliseconds milliseconds_of(const std::optional<Seconds>& seconds) {
  return seconds ? milliseconds_of(*seconds) : std::chrono::milliseconds{};
}

Handle::Handle(Communicator communicator) : communicator_(std::move(communicator)) {
  const std::lock_guard lock(open_handles().mutex);
  open_handles().handles.insert(this);
}

Handle::~Handle() {
  {
    const std::lock_guard lock(open_handles().mutex);
    open_handles().handles.erase(this);
  }
  close();
}

void close_all() {
  std::set<Handle*> handles;
  {
    const std::lock_guard lock(open_handles().mutex);
    handles = open_handles().handles;
  }
  for (Handle* handle : handles) handle->close();
  stop_watching_for_interrupts();
}

Communicator& Handle::get() {
  if (!communicator_) throw Error(ErrorCode::invalid_argument, "the communicator was closed");
  return communicator_;
}

Place Handle::place() {
  Communicator& communicator = get();
  return {.rank = communicator.rank(), .world_size = communicator.world_size(), .device = communicator.device()};
}

void Handle::close() {
  if (!communicator_) return;
  if (PyGILState_Check() == 0) {
    communicator_ = Communicator();
    return;
  }
  const nb::gil_scoped_release release;
  communicator_ = Communicator();
}

void Blocking::run(const Request& request) {
  Communicator& communicator = handle->get();
  while_interruptible(communicator, [&] { communicator.submit(request.call); });
}

void Deadline::run(const Request& request) {
  Communicator& communicator = handle->get();
  Within within = communicator.within(timeout);
  while_interruptible(communicator, [&] { within.submit(request.call); });
}

Work Starting::run(const Request& request) {
  const nb::gil_scoped_release release;
  Work work = handle->get().async(timeout).submit(request.call);
  keep_until_done(work, {request.borrowed});
  return work;
}

void Recording::run(const Request& request) {
  handle->get();
  group->submit(request.call);
  borrowed.push_back(request.borrowed);
}

void Recording::end() {
  Communicator& communicator = handle->get();
  while_interruptible(communicator, [&] { group->end(); });
  borrowed.clear();
}

Work Recording::start() {
  handle->get();
  const nb::gil_scoped_release release;
  Work work = group->start();
  keep_until_done(work, std::move(borrowed));
  borrowed.clear();
  return work;
}

}  // namespace rondo::python
