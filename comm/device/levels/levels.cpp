// SPDX-License-Identifier: Apache-2.0
#include "comm/device/levels/levels.hpp"

#include <mutex>
#include <set>
#include <vector>

#include "comm/device/launch/device_engine.hpp"

namespace rondo::comm::device {
namespace {

// Flight records keep views of names. There are few combinations of kernels.
std::string_view lasting(std::string names) {
  static std::mutex mutex;
  static auto* const all = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return *all->insert(std::move(names)).first;
}

}  // namespace

Levels::Levels(Parts parts) : parts_(std::move(parts)) {}
Levels::~Levels() = default;

std::string_view Levels::why_not(const Call& call) const {
  return why_not_levels(call, parts_.shape, parts_.determinism, parts_.wanted);
}

// Steps of a level in a row go together, so that one kernel may run them all.
void Levels::run(const Call& call, const Signature& signature, cudaStream_t stream, std::chrono::milliseconds timeout,
                 const std::function<void(std::byte* word)>& before) {
  const std::vector<LevelStep> steps = plan_levels(call, parts_.shape);
  for (std::size_t first = 0, last = 0; first < steps.size(); first = last) {
    std::vector<Call> calls;
    for (; last < steps.size() && steps[last].level == steps[first].level; ++last) calls.push_back(steps[last].call);
    DeviceEngine& engine = engine_of(steps[first].level);
    before(engine.failed_word());
    engine.run_part(calls, signature, stream, timeout);
  }
}

std::string_view Levels::kernels_of(const Call& call) const {
  std::string names;
  std::string_view latest;
  for (const LevelStep& step : plan_levels(call, parts_.shape)) {
    const std::string_view name = engine_of(step.level).kernel_for(step.call);
    if (name == latest) continue;
    names.append(names.empty() ? "" : ", ").append(name);
    latest = name;
  }
  return lasting(std::move(names));
}

void Levels::inspect() {
  parts_.node->inspect();
  if (parts_.rail) parts_.rail->inspect();
}

void Levels::abort() {
  parts_.node->abort();
  if (parts_.rail) parts_.rail->abort();
}

void Levels::keep() { parts_.scratch.release(); }  // NOLINT(bugprone-unused-return-value)

}  // namespace rondo::comm::device
