// SPDX-License-Identifier: Apache-2.0
// Captured work: nodes in the order of their capture, which is a topological one. A branch is what one stream captured;
// when the graph is launched, branch 0 runs in the launching stream and every other one in a stream of its own.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/declarations.hpp"
#include "kernels/soft/stream.hpp"

namespace rondo::soft {

// Calls the user's function when the last of the user, graphs, executables and running launches lets go.
class UserData {
 public:
  UserData(void* data, cudaHostFn_t destroy) : data_(data), destroy_(destroy) {}
  ~UserData() { destroy_(data_); }
  UserData(const UserData&) = delete;
  UserData& operator=(const UserData&) = delete;

 private:
  void* data_;
  cudaHostFn_t destroy_;
};

struct UserObject {
  std::shared_ptr<UserData> data;
  unsigned references;  // the user's
};

struct GraphNode {
  int branch;
  Device* device;
  std::vector<int> after;
  Work work;
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<Device*> branches;  // their devices
  std::vector<std::shared_ptr<UserData>> retained;
};

struct Executable {
  std::shared_ptr<const Graph> graph;             // a copy: changing or destroying the graph does not reach it
  std::vector<std::shared_ptr<Stream>> branches;  // 0: null
  Ticket last;                                    // launches of one executable follow each other
};

// Guarded by Process::mutex.
struct Capture {
  struct Branch {
    int index;
    std::vector<int> heads;  // what its next node comes after
  };
  cudaStreamCaptureMode mode;
  unsigned long long id;
  std::thread::id thread;
  Stream* origin;
  Graph graph;
  std::map<Stream*, Branch> branches;
  bool invalidated = false, ended = false;

  void add(Stream& stream, Work work);
  void join(Stream& stream, const std::vector<int>& after);
  bool is_joined() const;  // every node comes before the heads of the origin
};

}  // namespace rondo::soft
