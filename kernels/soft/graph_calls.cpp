// SPDX-License-Identifier: Apache-2.0
// Graphs: captured work that is launched any number of times, and user objects that live as long as it.
#include "kernels/soft/call.hpp"
#include "kernels/soft/graph.hpp"
#include "kernels/soft/submit.hpp"

namespace rondo::soft {
namespace {

cudaError_t instantiate(cudaGraphExec_t* out, cudaGraph_t handle, unsigned long long flags) {
  return device_call([&](Process& here) {
    if (out == nullptr || flags != 0) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const auto graph = here.has.graphs.find(handle);
    if (graph == nullptr) return cudaErrorInvalidValue;
    auto executable = std::make_shared<Executable>();
    executable->graph = std::make_shared<const Graph>(*graph);
    executable->branches.push_back(nullptr);
    for (std::size_t branch = 1; branch < graph->branches.size(); ++branch) {
      executable->branches.push_back(std::make_shared<Stream>(*graph->branches[branch], Stream::Kind::non_blocking));
    }
    *out = here.has.executables.add(std::move(executable));
    return cudaSuccess;
  });
}

// Nodes of one branch follow each other by themselves; `begin` is what the first ones of other branches come after.
std::vector<Ticket> dependencies(const Graph& graph, const GraphNode& node, const std::vector<Ticket>& tickets,
                                 const Ticket& begin) {
  std::vector<Ticket> after;
  if (node.branch != 0) after.push_back(begin);
  for (const int before : node.after) {
    const auto index = static_cast<std::size_t>(before);
    if (graph.nodes[index].branch != node.branch) after.push_back(tickets[index]);
  }
  return after;
}

void enqueue(Process& here, Executable& executable, Stream& stream) {
  const std::shared_ptr<const Graph> graph = executable.graph;
  const Ticket begin = push(here, stream, {{executable.last}, {}});
  std::vector<Ticket> tickets;
  std::vector<Ticket> ends(graph->branches.size());
  for (std::size_t index = 0; index < graph->nodes.size(); ++index) {
    const GraphNode& node = graph->nodes[index];
    const auto branch = static_cast<std::size_t>(node.branch);
    Stream& target = branch == 0 ? stream : *executable.branches[branch];
    Work work(
        [graph, index](const std::uint32_t* ended) {
          const GraphNode& mine = graph->nodes[index];
          if (!mine.device->has_failed()) mine.work.run(ended);
        },
        node.work.may_begin_early, node.work.lets_next_begin);
    tickets.push_back(target.push({dependencies(*graph, node, tickets, begin), std::move(work)}));
    if (branch != 0) ends[branch] = tickets.back();
  }
  executable.last = push(here, stream, {std::move(ends), {}});
}

cudaError_t launch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  return device_call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    const auto executable = here.has.executables.find(handle);
    const auto stream = here.stream(stream_handle);
    if (executable == nullptr) return cudaErrorInvalidValue;
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    cudaError_t refused = refuse_capturing(*stream);  // a graph within a graph
    if (refused == cudaSuccess) refused = refuse_implicit_use(here, *stream);
    if (refused != cudaSuccess) return refused;
    enqueue(here, *executable, *stream);
    return cudaSuccess;
  });
}

// What is running goes on; what it retains is let go when it ends.
cudaError_t destroy_executable(cudaGraphExec_t handle) {
  return call([&](Process& here) {
    std::shared_ptr<Executable> executable;
    {
      const std::lock_guard lock(here.mutex);
      executable = here.has.executables.remove(handle);
    }
    if (executable == nullptr) return cudaErrorInvalidValue;
    for (auto& stream : executable->branches) {
      if (stream != nullptr) here.retire(std::move(stream));
    }
    here.join_retired();
    return cudaSuccess;
  });
}

cudaError_t destroy_graph(cudaGraph_t handle) {
  return call([&](Process& here) {
    std::shared_ptr<Graph> graph;  // destroyed without the lock
    const std::lock_guard lock(here.mutex);
    graph = here.has.graphs.remove(handle);
    return graph == nullptr ? cudaErrorInvalidValue : cudaSuccess;
  });
}

cudaError_t create_object(cudaUserObject_t* out, void* data, cudaHostFn_t destroy, unsigned references,
                          unsigned flags) {
  return call([&](Process& here) {
    if (out == nullptr || destroy == nullptr || references == 0 || flags != cudaUserObjectNoDestructorSync) {
      return cudaErrorInvalidValue;
    }
    const std::lock_guard lock(here.mutex);
    auto object = std::make_shared<UserObject>();
    object->data = std::make_shared<UserData>(data, destroy);
    object->references = references;
    *out = here.has.user_objects.add(std::move(object));
    return cudaSuccess;
  });
}

cudaError_t release_object(cudaUserObject_t handle, unsigned count) {
  return call([&](Process& here) {
    std::shared_ptr<UserObject> last;  // destroyed without the lock: it calls the user
    const std::lock_guard lock(here.mutex);
    const auto object = here.has.user_objects.find(handle);
    if (object == nullptr) return cudaErrorInvalidResourceHandle;
    if (count == 0 || count > object->references) return cudaErrorInvalidValue;
    object->references -= count;
    if (object->references == 0) last = here.has.user_objects.remove(handle);
    return cudaSuccess;
  });
}

}  // namespace

void add_graph_calls(cuda::Api& api) {
  api.GraphInstantiate = &instantiate;
  api.GraphLaunch = &launch;
  api.GraphExecDestroy = &destroy_executable;
  api.GraphDestroy = &destroy_graph;
  api.UserObjectCreate = &create_object;
  api.UserObjectRelease = &release_object;
}

}  // namespace rondo::soft
