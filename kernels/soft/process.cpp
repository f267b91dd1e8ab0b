// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/process.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "kernels/soft/event.hpp"
#include "kernels/soft/graph.hpp"
#include "kernels/soft/submit.hpp"

namespace rondo::soft {
namespace {

constinit std::atomic<Process*> g_process{nullptr};

void lock_for_fork() { g_process.load()->mutex.lock(); }
void unlock_after_fork() { g_process.load()->mutex.unlock(); }
void start_afresh() {
  Process* const inherited = g_process.load();
  auto* const fresh = new Process(inherited->settings);
  fresh->before_fork = inherited;
  inherited->mutex.unlock();
  g_process.store(fresh);
}

bool start() {
  g_process.store(new Process(Settings{}));
  return pthread_atfork(&lock_for_fork, &unlock_after_fork, &start_afresh) == 0;
}

struct AtExit {
  ~AtExit() {
    Process& here = process();
    here.unloading = true;
    here.stop_all();
  }
};

std::vector<int> visible(const Settings& settings) {
  std::vector<int> numbers;
  if (!settings.visible_devices) {
    for (int number = 0; number < settings.devices; ++number) numbers.push_back(number);
    return numbers;
  }
  for (const int number : *settings.visible_devices) {
    if (number < 0 || number >= settings.devices || std::count(numbers.begin(), numbers.end(), number) != 0) break;
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::unique_ptr<Device>> make_devices(const Settings& settings) {
  std::vector<std::unique_ptr<Device>> devices;
  const auto blocks = static_cast<unsigned>(std::max(settings.resident_blocks, 1));
  for (const int number : visible(settings)) {
    devices.push_back(std::make_unique<Device>(static_cast<int>(devices.size()), number, blocks));
  }
  return devices;
}

}  // namespace

Process& process() {
  [[maybe_unused]] static const bool started = start();
  static const AtExit at_exit;
  return *g_process.load();
}

int& current_device() {
  thread_local int index = 0;
  return index;
}

Process::Process(Settings settings_) : settings(std::move(settings_)) { has.devices = make_devices(settings); }

Device& Process::current() { return *has.devices.at(static_cast<std::size_t>(current_device())); }

Device* Process::device(int index) {
  const bool exists = index >= 0 && static_cast<std::size_t>(index) < has.devices.size();
  return exists ? has.devices[static_cast<std::size_t>(index)].get() : nullptr;
}

std::shared_ptr<Stream> Process::stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return current().legacy;
  return has.streams.find(handle);
}

std::vector<std::shared_ptr<Stream>> Process::streams_of(const Device& device) const {
  std::vector<std::shared_ptr<Stream>> found = {device.legacy};
  for (const auto& [handle, stream] : has.streams) {
    if (&stream->device() == &device) found.push_back(stream);
  }
  for (const auto& stream : has.retired) {
    if (&stream->device() == &device) found.push_back(stream);
  }
  for (const auto& [handle, executable] : has.executables) {
    for (const auto& stream : executable->branches) {
      if (stream != nullptr && &stream->device() == &device) found.push_back(stream);
    }
  }
  return found;
}

bool Process::in_use() const {
  return !has.memory.empty() || !has.streams.empty() || !has.events.empty() || !has.graphs.empty() ||
         !has.executables.empty() || !has.captures.empty() || !has.retired.empty();
}

void Process::retire(std::shared_ptr<Stream> stream) {
  stream->finish();
  const std::lock_guard lock(mutex);
  has.retired.push_back(std::move(stream));
}

void Process::join_retired() {
  std::vector<std::shared_ptr<Stream>> ended;  // destroyed without the lock
  const std::lock_guard lock(mutex);
  const auto first =
      std::partition(has.retired.begin(), has.retired.end(), [](const auto& s) { return !s->has_finished(); });
  std::move(first, has.retired.end(), std::back_inserter(ended));
  has.retired.erase(first, has.retired.end());
}

void Process::stop_all() {
  cancel = true;
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard lock(mutex);
    for (const auto& device : has.devices) {
      for (auto& stream : streams_of(*device)) all.push_back(std::move(stream));
      device->budget.wake();
    }
  }
  for (const auto& stream : all) stream->drop();
  for (const auto& stream : all) stream->join();
}

void Process::report(const std::string& sentence) {
  void (*hook)(const char*) = nullptr;
  {
    const std::lock_guard lock(mutex);
    hook = settings.report;
  }
  if (hook != nullptr) return hook(sentence.c_str());
  std::fprintf(stderr, "rondo: simulated device: %s\n", sentence.c_str());
}

bool configure(const Settings& wanted) {
  Process& here = process();
  here.join_retired();
  std::vector<std::unique_ptr<Device>> old;  // ends the default streams' threads, without the lock
  const std::lock_guard lock(here.mutex);
  if (wanted == here.settings) return true;
  if (here.in_use()) return false;
  here.settings = wanted;
  old.swap(here.has.devices);
  here.has.devices = make_devices(wanted);
  return true;
}

Settings settings() {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  return here.settings;
}

void reset() {
  Process& here = process();
  here.stop_all();
  Process::Contents old;
  {
    const std::lock_guard lock(here.mutex);
    old = std::exchange(here.has, {});
    here.has.devices = make_devices(here.settings);
  }
  here.cancel = false;
}

}  // namespace rondo::soft
