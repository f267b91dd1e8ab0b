// SPDX-License-Identifier: Apache-2.0
// Backward passes that run inside another one, as a layer makes them that forgets its activations and computes them
// again (checkpointing): libtorch ends each of them as if it were the last.
#pragma once
#include <ATen/record_function.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace rondo::detail {

class NestedPasses {
 public:
  // From now on this process's backward passes are watched, at the cost of a call per node.
  static void watch() {
    static const at::CallbackHandle handle =
        at::addGlobalCallback(at::RecordFunctionCallback(&NestedPasses::on_begin, &NestedPasses::on_end)
                                  .scopes({at::RecordScope::BACKWARD_FUNCTION}));
    static_cast<void>(handle);
  }
  // At the end of a pass: this thread is in the middle of a node of another one.
  static bool is_nested() { return !nodes().empty(); }
  // Called when that node ends, in its pass.
  static void at_end_of_node(std::function<void()> call) { nodes().back().push_back(std::move(call)); }

 private:
  using Calls = std::vector<std::function<void()>>;

  static std::vector<Calls>& nodes() {  // that this thread is in the middle of
    thread_local std::vector<Calls> all;
    return all;
  }
  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction&) {
    nodes().emplace_back();
    return nullptr;
  }
  static void on_end(const at::RecordFunction&, at::ObserverContext*) {
    const Calls calls = std::move(nodes().back());
    nodes().pop_back();
    for (const auto& call : calls) call();
  }
};

}  // namespace rondo::detail
