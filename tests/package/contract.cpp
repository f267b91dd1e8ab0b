// SPDX-License-Identifier: Apache-2.0
#include "contract.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

namespace consumer {
namespace {

using rondo::Communicator;
using rondo::DataType;
using rondo::ReduceOp;
using std::size_t;

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("contract: ") + what);
}

// A user's own store: a map under a mutex.
class MapStore : public rondo::Store {
 public:
  void set(std::string_view key, std::span<const std::byte> value) override {
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = Bytes(value.begin(), value.end());
    changed_.notify_all();
  }
  Bytes get(std::string_view key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const std::string name(key);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.contains(name); })) {
      throw rondo::Error(rondo::ErrorCode::timeout, "nobody set " + name);
    }
    return values_[name];
  }
  std::optional<Bytes> try_get(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(std::string(key));
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::int64_t add(std::string_view key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    return counters_[std::string(key)] += amount;
  }
  bool compare_and_set(std::string_view key, std::optional<Bytes> wanted, std::span<const std::byte> value) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(std::string(key));
    const auto held = found == values_.end() ? std::nullopt : std::optional(found->second);
    if (held != wanted) return false;
    values_[std::string(key)] = Bytes(value.begin(), value.end());
    changed_.notify_all();
    return true;
  }
  bool erase(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    return values_.erase(std::string(key)) > 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
  std::map<std::string, std::int64_t> counters_;
};

// Runs `body(index)` on `count` threads and rethrows the first error.
template <class Body>
void on_threads(int count, Body body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  {
    std::vector<std::jthread> threads;
    for (int index = 0; index < count; ++index) {
      threads.emplace_back([&, index] {
        try {
          body(index);
        } catch (...) {
          errors[static_cast<size_t>(index)] = std::current_exception();
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void check_reductions(Communicator& comm) {
  const float rank = static_cast<float>(comm.rank());
  std::vector<float> data = {rank, 1.0F};
  comm.all_reduce(std::span<float>(data), ReduceOp::sum);
  require(data[0] == 1.0F && data[1] == 2.0F, "all_reduce in place");
  const std::vector<float> two = {rank, rank + 1};
  std::vector<float> out(2), one(1);
  comm.all_reduce(std::span<const float>(two), std::span<float>(out), ReduceOp::max);
  require(out[0] == 1.0F && out[1] == 2.0F, "all_reduce out of place");
  comm.all_reduce(two, out, ReduceOp::premul_sum(0.5));
  require(out[0] == 0.5F, "premul_sum");
  comm.reduce(std::span<const float>(two),
              std::span<float>(comm.rank() == 1 ? out.data() : nullptr, comm.rank() == 1 ? 2 : 0), ReduceOp::average,
              1);
  require(comm.rank() == 0 || out[1] == 1.5F, "reduce");
  comm.reduce_scatter(std::span<const float>(two), std::span<float>(one), ReduceOp::product);
  require(one[0] == (comm.rank() == 0 ? 0.0F : 2.0F), "reduce_scatter");
  comm.all_reduce(two.data(), out.data(), 2, DataType::f32, ReduceOp::min);
  require(out[0] == 0.0F && out[1] == 1.0F, "untyped all_reduce");
}

void check_movements(Communicator& comm) {
  const int me = comm.rank();
  std::vector<int> data = {me + 7}, both(2);
  comm.broadcast(std::span<int>(data), 1);
  require(data[0] == 8, "broadcast");
  const std::vector<int> mine = {me}, pair = {10 * me, 10 * me + 1};
  comm.all_gather(std::span<const int>(mine), std::span<int>(both));
  require(both == std::vector<int>({0, 1}), "all_gather");
  comm.all_to_all(std::span<const int>(pair), std::span<int>(both));
  require(both == std::vector<int>({me, 10 + me}), "all_to_all");
  comm.gather(std::span<const int>(mine), me == 0 ? std::span<int>(both) : std::span<int>(), 0);
  require(me == 1 || both == std::vector<int>({0, 1}), "gather");
  comm.scatter(me == 1 ? std::span<const int>(pair) : std::span<const int>(), std::span<int>(data), 1);
  require(data[0] == 10 + me, "scatter");

  const std::vector<size_t> counts = {1, 2};
  const std::span<const size_t> parts(counts);
  const std::vector<int> own(counts[static_cast<size_t>(me)], me);
  std::vector<int> three(3), back(own.size());
  comm.all_gather_v(std::span<const int>(own), std::span<int>(three), parts);
  require(three == std::vector<int>({0, 1, 1}), "all_gather_v");
  comm.gather_v(std::span<const int>(own), me == 0 ? std::span<int>(three) : std::span<int>(), parts, 0);
  comm.scatter_v(me == 0 ? std::span<const int>(three) : std::span<const int>(), std::span<int>(back), parts, 0);
  require(back == own, "gather_v and scatter_v");
  // Rank 0 keeps one element and sends two; rank 1 sends one and keeps one.
  const std::vector<size_t> to = me == 0 ? std::vector<size_t>{1, 2} : std::vector<size_t>{1, 1};
  const std::vector<size_t> from = me == 0 ? std::vector<size_t>{1, 1} : std::vector<size_t>{2, 1};
  const std::vector<int> sent(me == 0 ? 3 : 2, me);
  std::vector<int> got(me == 0 ? 2 : 3);
  comm.all_to_all_v(std::span<const int>(sent), std::span<const size_t>(to), std::span<int>(got),
                    std::span<const size_t>(from));
  require(got == (me == 0 ? std::vector<int>{0, 1} : std::vector<int>{0, 0, 1}), "all_to_all_v");
}

void check_peers(Communicator& comm) {
  const int me = comm.rank(), peer = 1 - me;
  std::vector<double> data = {1.5 + me}, other(1);
  if (me == 0) comm.send(std::span<const double>(data), peer);
  if (me == 1) comm.recv(std::span<double>(other), peer);
  require(me == 0 || other[0] == 1.5, "send and recv");
  rondo::Group group = comm.group();
  group.send(std::span<const double>(data), peer);
  group.recv(std::span<double>(other), peer);
  group.end();
  require(other[0] == 1.5 + peer, "group");
  comm.barrier();
  std::vector<std::byte> bytes(static_cast<size_t>(me) + 1, std::byte{42});
  const auto all = comm.all_gather_bytes(std::span<const std::byte>(bytes));
  require(all.size() == 2 && all[0].size() == 1 && all[1].size() == 2, "all_gather_bytes");
}

void check_the_rest(Communicator& comm) {
  std::vector<float> data = {1.0F};
  rondo::Async async = comm.async();
  rondo::Work work = async.all_reduce(std::span<float>(data), ReduceOp::sum);
  while (!work.wait_for(std::chrono::milliseconds(100))) {
  }
  require(work.done() && !work.error() && data[0] == 2.0F, "Work");
  work.wait();

  const rondo::Window<float> window = comm.allocate<float>(3);
  std::ranges::fill(window.span(), 2.0F);
  comm.all_reduce(window.span(), ReduceOp::product);
  require(window.span()[2] == 4.0F, "Window");

  Communicator reversed = comm.split(0, -comm.rank());
  require(reversed && reversed.rank() == 1 - comm.rank() && reversed.world_size() == 2, "split");
  require(!comm.split(-1, 0), "split with a color below 0");
  require(comm.local_size() == 2 && comm.local_rank() == comm.rank() && comm.node() == 0, "places");

  bool named = false;
  try {
    comm.broadcast(std::span<float>(data), 2);
  } catch (const rondo::Error& error) {
    named = error.code() == rondo::ErrorCode::invalid_argument && error.what() != nullptr;
  }
  require(named, "a root that is no rank is an invalid_argument");
  comm.check();
  comm.barrier();
}

void check_all(Communicator& comm) {
  require(comm.world_size() == 2, "world_size");
  check_reductions(comm);
  check_movements(comm);
  check_peers(comm);
  check_the_rest(comm);
}

// After abort() every rank fails, and shrink() of the survivors is a new world.
void check_abort() {
  auto ranks = Communicator::local(2);
  on_threads(2, [&](int index) {
    Communicator& comm = ranks[static_cast<size_t>(index)];
    bool failed = false;
    if (index == 0) comm.abort();
    try {
      comm.barrier();
    } catch (const rondo::Error& error) {
      failed = error.code() == rondo::ErrorCode::aborted;
    }
    require(failed, "abort fails the calls of every rank");
    Communicator survivors = comm.shrink();
    std::vector<int> ones = {1};
    survivors.all_reduce(std::span<int>(ones), ReduceOp::sum);
    require(survivors.world_size() == 2 && ones[0] == 2, "shrink");
  });
}

struct Directory {
  std::string path = (std::filesystem::temp_directory_path() / "rondo-consumer-XXXXXX").string();
  Directory() { require(mkdtemp(path.data()) != nullptr, "mkdtemp"); }
  Directory(const Directory&) = delete;
  ~Directory() { std::filesystem::remove_all(path); }
};

}  // namespace

void check_contract() {
  require(rondo::spawn(2, [](Communicator& comm) { check_all(comm); }) == 0, "spawn");
  Communicator alone = Communicator::from_environment();
  require(alone.rank() == 0 && alone.world_size() == 1, "a world of one without a launcher");
  alone.barrier();

  rondo::Options options;
  options.device = rondo::Device::cpu();
  options.timeout = options.join_timeout = std::chrono::seconds(30);
  options.determinism = rondo::Determinism::reproducible;
  auto ranks = Communicator::local(2, options);
  on_threads(2, [&](int index) { check_all(ranks[static_cast<size_t>(index)]); });

  MapStore store;
  on_threads(2, [&](int index) {
    Communicator comm = Communicator::create({.rank = index, .world_size = 2, .store = &store}, options);
    check_all(comm);
  });
  const Directory directory;
  on_threads(2, [&](int index) {
    const std::string url = "file://" + directory.path + "/meet";
    Communicator comm = Communicator::create({.rank = index, .world_size = 2, .url = url}, options);
    check_all(comm);
  });
  check_abort();
}

}  // namespace consumer
