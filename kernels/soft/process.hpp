// SPDX-License-Identifier: Apache-2.0
// The soft runtime's state in this process, as CUDA's runtime has one: the only mutable global of kernels/. It is never
// destroyed, for streams of the user's static objects may outlive any order of destruction; at exit its threads end,
// and later calls return cudaErrorCudartUnloading. A child of fork() starts with a fresh one and its parent's settings.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels/soft/device.hpp"
#include "kernels/soft/memory.hpp"
#include "kernels/soft/settings.hpp"

namespace rondo::soft {

struct Capture;
struct Event;
struct Executable;
struct Graph;
struct UserObject;

// Handles of the runtime's are addresses of objects; what is not in the map is not a handle.
template <class Raw, class Object>
class Handles {
 public:
  Raw add(std::shared_ptr<Object> object) {
    const Raw raw = reinterpret_cast<Raw>(object.get());
    objects_.emplace(raw, std::move(object));
    return raw;
  }
  std::shared_ptr<Object> find(Raw raw) const {
    const auto at = objects_.find(raw);
    return at == objects_.end() ? nullptr : at->second;
  }
  std::shared_ptr<Object> remove(Raw raw) {
    auto object = find(raw);
    objects_.erase(raw);
    return object;
  }
  bool empty() const { return objects_.empty(); }
  void clear() { objects_.clear(); }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }

 private:
  std::map<Raw, std::shared_ptr<Object>> objects_;
};

struct Process {
  explicit Process(Settings settings);

  // What a reset gives up.
  struct Contents {
    std::vector<std::unique_ptr<Device>> devices;  // first: the others refer to them
    Memory memory;
    Handles<cudaStream_t, Stream> streams;
    std::vector<std::shared_ptr<Stream>> retired;  // destroyed by the user, with work left
    Handles<cudaEvent_t, Event> events;
    Handles<cudaGraph_t, Graph> graphs;
    Handles<cudaGraphExec_t, Executable> executables;
    Handles<cudaUserObject_t, UserObject> user_objects;
    std::set<std::shared_ptr<Capture>> captures;  // going on
  };

  std::mutex mutex;  // guards what follows; never held while waiting, but for the streams' own locks
  Settings settings;
  Contents has;
  Process* before_fork = nullptr;  // the parent's: its threads are not here, so it is left alone

  std::atomic<bool> unloading{false};
  std::atomic<bool> cancel{false};  // running kernels end

  // With the lock:
  Device& current();
  Device* device(int index);                            // null: there is none such
  std::shared_ptr<Stream> stream(cudaStream_t handle);  // null handle: the current device's default; null: not a stream
  std::vector<std::shared_ptr<Stream>> streams_of(const Device& device) const;  // retired ones included
  bool in_use() const;

  // Without it:
  void retire(std::shared_ptr<Stream> stream);  // lets it finish by itself
  void join_retired();
  void stop_all();  // streams' threads have ended when it returns
  void report(const std::string& sentence);
};

Process& process();
int& current_device();  // of the thread

}  // namespace rondo::soft
