// SPDX-License-Identifier: Apache-2.0
#include "bindings/python/source/handle.hpp"

#include <cmath>
#include <mutex>
#include <set>
#include <thread>

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

thread_local int callbacks_of_this_thread = 0;

int destroy_later(void* communicator) {
  const std::unique_ptr<Communicator> held(static_cast<Communicator*>(communicator));
  const nb::gil_scoped_release release;
  *held = Communicator();
  return 0;
}

}  // namespace

InCallback::InCallback() { ++callbacks_of_this_thread; }
InCallback::~InCallback() { --callbacks_of_this_thread; }

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

Handle::Use::Use(Handle& handle) : lock_(handle.mutex_, std::try_to_lock), communicator_(&handle.communicator_) {
  // Waiting here with the GIL could keep the engine thread waiting that the closing one waits for.
  if (!lock_ || !*communicator_) throw Error(ErrorCode::invalid_argument, "the communicator was closed");
}

Place Handle::place() {
  const Use communicator = use();
  return {.rank = communicator->rank(), .world_size = communicator->world_size(), .device = communicator->device()};
}

void Handle::close() {
  const bool has_gil = PyGILState_Check() != 0;
  std::optional<nb::gil_scoped_release> release;
  if (has_gil) release.emplace();
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {  // another thread calls: its call ends by this
    if (communicator_) communicator_.abort();
    lock.lock();
  }
  if (!communicator_) return;
  if (callbacks_of_this_thread == 0) {
    communicator_ = Communicator();
    return;
  }
  auto* later = new Communicator(std::move(communicator_));
  while (Py_AddPendingCall(destroy_later, later) != 0) std::this_thread::yield();  // its list is full for a moment
}

void Blocking::run(const Request& request) {
  while_interruptible(*handle, [&](Communicator& communicator) { communicator.submit(request.call); });
}

void Deadline::run(const Request& request) {
  while_interruptible(*handle, [&](Communicator& communicator) { communicator.within(timeout).submit(request.call); });
}

Work Starting::run(const Request& request) {
  const nb::gil_scoped_release release;
  Work work = handle->use()->async(timeout).submit(request.call);
  keep_until_done(work, {request.borrowed});
  return work;
}

void Recording::run(const Request& request) {
  const Handle::Use use = handle->use();
  group->submit(request.call);
  borrowed.push_back(request.borrowed);
}

void Recording::end() {
  while_interruptible(*handle, [&](Communicator&) { group->end(); });
  borrowed.clear();
}

Work Recording::start() {
  const nb::gil_scoped_release release;
  const Handle::Use use = handle->use();
  Work work = group->start();
  keep_until_done(work, std::move(borrowed));
  borrowed.clear();
  return work;
}

}  // namespace rondo::python
