// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: the same segment and links as between processes, over anonymous memory.
#include <fmt/format.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <exception>
#include <numeric>
#include <thread>

#include "comm/base/machine.hpp"
#include "comm/base/system_error.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/setup/bootstrap.hpp"
#include "comm/setup/create.hpp"
#include "comm/setup/local_store.hpp"
#include "comm/setup/placement.hpp"
#include "comm/transport/memory.hpp"
#include "comm/transport/shm_link.hpp"
#include "comm/transport/transport.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm {

struct LocalGroup {
  int world_size = 1;
  int cores = usable_cores();  // the same for all ranks, wherever their threads may run
  Options options;
  Config config;
  FifoShape shape;
  Mapping memory;
  std::shared_ptr<const std::vector<Fd>> bells;
  std::shared_ptr<LocalStore> store;
};

std::shared_ptr<LocalGroup> make_local_group(int world_size, const Options& options) {
  if (world_size < 1 || world_size > kMostRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a world of {} ranks: it takes 1 to {}", world_size, kMostRanks));
  }
  auto group = std::make_shared<LocalGroup>();
  group->world_size = world_size;
  group->options = checked(options);
  group->config = Config::from_environment(transports());
  group->shape = fit_fifos(group->config, world_size);
  group->memory = map_anonymous(Segment::bytes(world_size, group->shape));
  auto bells = std::make_shared<std::vector<Fd>>();
  for (int bell = 0; bell < world_size * static_cast<int>(kLanes); ++bell) {
    bells->emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bells->back()) throw_errno("cannot make a doorbell");
  }
  group->bells = bells;
  group->store = std::make_shared<LocalStore>(world_size);
  return group;
}

namespace {

std::unique_ptr<detail::CommunicatorImpl> make_local_rank(const std::shared_ptr<LocalGroup>& group, int rank,
                                                          Device device, int driver = -1) {
  const Segment segment(group->memory.data(), group->world_size, group->shape);
  Team::Parts parts;
  parts.rank = rank;
  for (int r = 0; r < group->world_size; ++r) {
    parts.placement.push_back({.node = 0, .local_rank = r, .segment_index = r, .host = host_name(), .pid = ::getpid()});
  }
  parts.segment = segment;
  parts.memory = group;
  parts.bells = Doorbells(segment, group->bells);
  parts.cores = group->cores;
  parts.crowded = group->world_size > parts.cores;
  Bootstrap bootstrap;
  bootstrap.rank = rank;
  bootstrap.world_size = group->world_size;
  bootstrap.driver = driver;
  bootstrap.job_ranks.resize(static_cast<std::size_t>(group->world_size));
  std::iota(bootstrap.job_ranks.begin(), bootstrap.job_ranks.end(), 0);
  bootstrap.store = std::make_shared<LocalMember>(group->store, rank);
  auto team = std::make_unique<Team>(std::move(parts));
  for (int r = 0; r < group->world_size; ++r) {
    team->add_links(r, make_shm_links(segment, team->bells(), rank, r));
    if (r != rank)
      team->add_message_links(r, make_shm_links(segment.of_messages(), team->bells().of_messages(), rank, r));
  }
  Options options = group->options;
  options.device = device;
  return std::make_unique<detail::CommunicatorImpl>(std::move(team), std::move(bootstrap), std::move(options),
                                                    group->config);
}

// The device side is made by all ranks together, so each gets a thread for the moment.
void attach_devices(std::vector<std::unique_ptr<detail::CommunicatorImpl>>& ranks, const cuda::Api* api) {
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.push_back(start_thread("rondo-attach", [&, r] {
      try {
        ranks[r]->attach_device(api);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

Communicator join_local_group(const std::shared_ptr<LocalGroup>& group, int rank, Device device, int driver) {
  auto impl = make_local_rank(group, rank, device, driver);
  impl->attach_device();
  return Communicator(std::move(impl));
}

std::vector<Communicator> make_local(int world_size, const Options& options, const cuda::Api* api) {
  const auto group = make_local_group(world_size, options);
  std::vector<std::unique_ptr<detail::CommunicatorImpl>> made;
  for (int r = 0; r < world_size; ++r) made.push_back(make_local_rank(group, r, options.device));
  if (options.device.kind != Device::Kind::cpu) attach_devices(made, api);
  std::vector<Communicator> ranks;
  for (auto& impl : made) ranks.emplace_back(std::move(impl));
  return ranks;
}

}  // namespace rondo::comm
