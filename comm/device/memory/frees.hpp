// SPDX-License-Identifier: Apache-2.0
// Before CUDA frees memory it waits for all kernels on the device, and on those that have access to it, and meanwhile
// no thread of the process can launch one there. Where ranks are threads of a process, a kernel may be waiting for the
// rank that frees, or for one that has yet to launch: both would wait for the kernel's deadline. So memory is given
// back when no kernel of such ranks runs, on whichever device.
#pragma once
#include <chrono>
#include <functional>

#include "kernels/cuda/api.hpp"

namespace rondo::comm::device {

// Kernels of one rank of several of this process: from before a launch until they have ended, or wait for nobody. Not
// thread-safe.
class Traffic {
 public:
  explicit Traffic(const cuda::Api& api) : api_(api) {}
  ~Traffic();  // frees nothing: kernels of the user's may still run
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;
  void begin();  // waits for who is just freeing
  void end();    // frees what has been waiting, if it was the last

 private:
  const cuda::Api& api_;
  bool running_ = false;
};

// `free` now, or from the thread that ends the process's traffic.
void free_in_peace(const cuda::Api& api, std::function<void()> free);

// False: nothing was waiting to be freed, or it was not within that time.
bool await_frees(const cuda::Api& api, std::chrono::milliseconds patience);
// False: something still waits after that time.
bool await_no_frees(const cuda::Api& api, std::chrono::milliseconds patience);

}  // namespace rondo::comm::device
