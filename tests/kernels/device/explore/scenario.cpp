// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device/explore/scenario.hpp"

#include <fmt/format.h>

#include <memory>

#include "kernels/device/kernels.hpp"
#include "kernels/device/runs_on_device.hpp"
#include "kernels/simt/random.hpp"
#include "tests/kernels/device/explore/messages.hpp"
#include "tests/kernels/device/push_case.hpp"
#include "tests/kernels/device/window_case.hpp"

namespace rondo::test {
namespace {

// Where flags wrap or are refreshed: 2^20, 2^31, 2^32 steps; and the life of a link begins at 0.
constexpr std::uint64_t kStarts[] = {0, 0, 0, (1u << 20) - 2, (1ull << 31) - 3, (1ull << 32) - 3};

// The same of the push kernels, whose lines carry 15 bits of an epoch and are refreshed every 2^14.
constexpr std::uint64_t kPushStarts[] = {0, 0, 0, (1u << 14) - 3, (1u << 15) - 3, (1ull << 32) - 3};
static_assert(std::size(kPushStarts) == std::size(kStarts));

// ThreadSanitizer knows 255 threads at a time; where lanes share an identity it overlooks races between them.
constexpr unsigned kMostLanes =
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    224;
#else
    1024;
#endif
#else
    1024;
#endif

simt::Options choose_schedule(simt::Random& random) {
  simt::Options options;
  options.explore = true;
  options.seed = random.bits();
  options.policy = static_cast<simt::Policy>(1 + random.below(simt::kPolicyCount - 1));
  options.switch_percent = random.one_in(2) ? 25 : 5;
  options.weak = random.one_in(3);
  options.pct_steps = 1000ull << random.below(6);
  options.max_steps = 5'000'000;
  return options;
}

class Explorer {
 public:
  Explorer(KernelUnderTest kernel, std::uint64_t seed)
      : kernel_(kernel), seed_(seed), random_(seed), shape_(choose_shape()), world_(shape_) {}

  std::string run() {
    world_.start_steps(start_);
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      for (std::uint64_t& epoch : world_.header(rank).block_epoch) epoch = start_;
      for (std::uint32_t& epoch : world_.header(rank).push_epoch) epoch = static_cast<std::uint32_t>(start_);
      for (std::uint64_t& epoch : world_.header(rank).opening_epoch) epoch = start_;
    }
    const std::uint64_t launches = 1 + random_.below(3);
    if (may_overlap(launches) && random_.one_in(2)) return run_overlapping(launches);
    for (launch_ = 0; launch_ < launches; ++launch_) {
      const bool messages = is_fifo() && random_.one_in(4);
      const bool sums = kernel_ == KernelUnderTest::window_sum && !random_.one_in(4);
      const std::string wrong = messages    ? run_messages()
                                : is_push() ? run_push()
                                : sums      ? run_window_sums()
                                            : run_collectives();
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  bool is_push() const { return kernel_ == KernelUnderTest::push; }
  bool is_fifo() const { return kernel_ < KernelUnderTest::window; }
  bool is_window() const { return !is_fifo() && !is_push(); }

  // Mostly few ranks and one block: more make schedules longer, seldom better.
  WorldShape choose_shape() {
    start_ = (is_push() ? kPushStarts : kStarts)[random_.below(std::size(kStarts))];
    WorldShape shape;
    shape.ranks = static_cast<int>(random_.one_in(4) ? 5 + random_.below(4) : 2 + random_.below(3));
    shape.blocks = random_.one_in(4) ? 2 : 1;
    shape.threads = random_.one_in(2) ? 32 : 64;
    if (is_fifo() && random_.one_in(8)) shape.threads = 256;  // kThreadsWithRoles
    shape.fifo = {random_.one_in(4) ? 4u : 2u, 512};
    const auto lanes = [&] { return static_cast<unsigned>(shape.ranks * shape.blocks * shape.threads); };
    if (lanes() > kMostLanes) shape.blocks = 1;
    if (lanes() > kMostLanes) shape.threads = 32;
    while (lanes() > kMostLanes) --shape.ranks;
    shape.push = is_push();
    if (is_window()) {
      shape.staging_bytes = (1 + random_.below(3)) * kernels::least_staging_bytes(shape.ranks, shape.blocks);
    }
    return shape;
  }

  // A message of a few slots; with fewer elements than ranks some of its parts are empty.
  FifoCase choose_call() {
    FifoCase c;
    c.dtype = DataType::u32;
    c.op = ReduceOp::sum;
    c.ranks = shape_.ranks;
    c.channels = 1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(shape_.blocks)));
    c.threads = shape_.threads;
    c.fifo = shape_.fifo;
    c.root = static_cast<int>(random_.below(static_cast<std::uint64_t>(shape_.ranks)));
    c.in_place = random_.one_in(2);
    c.variable_counts = random_.one_in(3);
    c.misalignment = random_.one_in(2) ? 0 : random_.below(4);
    c.count = random_.one_in(4) ? random_.below(9) : random_.below(random_.one_in(3) ? 1200 : 300);
    return c;
  }
  FifoCase choose_fifo_case() {
    FifoCase c = choose_call();
    c.protocol = static_cast<device::Protocol>(kernel_);
    do {
      c.row = static_cast<int>(random_.below(kernels::kAlgorithmCount));
      if (c.makes_sense()) return c;
      c.in_place = c.variable_counts = false;
    } while (true);
  }
  WindowCase choose_window_case() {
    WindowCase c;
    c.call = choose_call();
    c.row = static_cast<int>(random_.below(kernels::kWindowAlgorithmCount));
    c.windows = static_cast<Windows>(random_.below(kWindowsCount));
    c.blocks = shape_.blocks;
    c.staging_bytes = shape_.staging_bytes;
    return sensible(c);
  }

  // Windows are those of one launch at a time, and ThreadSanitizer has to know the lanes of all.
  bool may_overlap(std::uint64_t launches) const {
    const auto lanes = static_cast<std::uint64_t>(shape_.ranks * shape_.blocks * shape_.threads);
    return is_fifo() && (kMostLanes > 255 || launches * lanes <= kMostLanes);
  }

  // Each rank's next kernel begins when its own has ended, whatever the others are in.
  std::string run_overlapping(std::uint64_t launches) {
    std::vector<std::vector<device::Launch>> all;
    std::vector<std::unique_ptr<FifoBuffers>> buffers;
    for (std::uint64_t i = 0; i < launches; ++i) {
      all.push_back(empty_launches());
      buffers.push_back(add_operation_to(all.back(), 0, true));
    }
    schedule_ = choose_schedule(random_);
    std::string wrong;
    const std::string report = world_.run_overlapping(kernel(), all, schedule_, [&](std::size_t launch, int rank) {
      launch_ = launch;
      if (wrong.empty()) wrong = fault_of(rank);
      if (wrong.empty()) wrong = check_and_spoil(*buffers[launch], rank);
    });
    return describe(wrong.empty() ? report : wrong);
  }

  std::string run_messages() {
    std::vector<device::Launch> launches = empty_launches();
    MessageGroup group(shape_, random_);
    group.add_to(launches, random_);
    what_ = "messages";
    return launch(launches, [&](int rank) { return check_and_spoil(group, rank); });
  }

  std::string run_collectives() {
    std::vector<device::Launch> launches = empty_launches();
    const int operations = 1 + static_cast<int>(random_.below(2));
    std::vector<std::unique_ptr<FifoBuffers>> buffers;
    what_.clear();
    for (int i = 0; i < operations; ++i) {
      buffers.push_back(add_operation_to(launches, i, operations == 1));
    }
    return launch(launches, [&](int rank) {
      std::string wrong;
      for (const auto& each : buffers) wrong = wrong.empty() ? check_and_spoil(*each, rank) : wrong;
      return wrong;
    });
  }

  std::string run_window_sums() {
    std::vector<device::Launch> launches = empty_launches();
    const int operations = 1 + static_cast<int>(random_.below(3));
    std::vector<std::unique_ptr<FifoBuffers>> buffers;
    what_.clear();
    const void* kernel = nullptr;
    for (int i = 0; i < operations; ++i) {
      WindowCase c = choose_window_case();
      c.row = static_cast<int>(random_.below(2));
      c.call.dtype = DataType::f32;
      c.call.op = ReduceOp::sum;
      c.apart = random_.one_in(2);
      if (random_.one_in(2)) c.windows = Windows::all;
      c = sensible(c);
      buffers.push_back(std::make_unique<FifoBuffers>(c.call));
      buffers.back()->fill(static_cast<std::uint32_t>(random_.bits()));
      add_operation(c, *buffers.back(), world_, launches, i);
      kernel = c.special_kernel();
      what_ += c.describe() + "; ";
    }
    auto sums = window_sum_launches(world_, launches);
    return launch(kernel, sums, [&](int rank) {
      std::string wrong;
      for (const auto& each : buffers) wrong = wrong.empty() ? check_and_spoil(*each, rank) : wrong;
      return wrong;
    });
  }

  // Groups of calls of different lengths, so that some threads have nothing to do in some of them.
  std::string run_push() {
    std::vector<device::PushLaunch> launches = push_launches(world_);
    const int operations = 1 + static_cast<int>(random_.below(4));
    std::vector<std::unique_ptr<FifoBuffers>> buffers;
    what_.clear();
    const bool folds = random_.one_in(2);
    const void* kernel = nullptr;
    for (int i = 0; i < operations; ++i) {
      PushCase c{.pattern = kPushPatterns[folds ? random_.below(2) : 2 + random_.below(3)],
                 .call = choose_call(),
                 .blocks = shape_.blocks};
      if (random_.one_in(2)) c.call.count = random_.below(5);
      c = sensible(c);
      buffers.push_back(std::make_unique<FifoBuffers>(c.call));
      buffers.back()->fill(static_cast<std::uint32_t>(random_.bits()));
      add_operation(c, *buffers.back(), launches, i);
      kernel = c.kernel();
      what_ += c.describe() + "; ";
    }
    return launch(kernel, launches, [&](int rank) {
      std::string wrong;
      for (const auto& each : buffers) wrong = wrong.empty() ? check_and_spoil(*each, rank) : wrong;
      return wrong;
    });
  }

  template <class Buffers>
  static std::string check_and_spoil(Buffers& buffers, int rank) {
    std::string wrong = buffers.check(rank);
    buffers.spoil(rank);
    return wrong;
  }

  // A launch has room for one list of counts.
  std::unique_ptr<FifoBuffers> add_operation_to(std::vector<device::Launch>& launches, int index, bool may_vary) {
    const auto fill = [&](FifoCase& call) {
      call.variable_counts = call.variable_counts && may_vary;
      auto buffers = std::make_unique<FifoBuffers>(call);
      buffers->fill(static_cast<std::uint32_t>(random_.bits()));
      return buffers;
    };
    if (is_window()) {
      WindowCase c = choose_window_case();
      auto buffers = fill(c.call);
      add_operation(c, *buffers, world_, launches, index);
      what_ += c.describe() + "; ";
      return buffers;
    }
    FifoCase c = choose_fifo_case();
    auto buffers = fill(c);
    buffers->add_to(launches, index);
    what_ += c.describe() + "; ";
    return buffers;
  }

  std::vector<device::Launch> empty_launches() {
    std::vector<device::Launch> launches;
    for (int rank = 0; rank < shape_.ranks; ++rank) launches.push_back(world_.launch(rank));
    return launches;
  }

  // ended(rank): what is wrong when the rank's kernel has ended, though others still run; "" if nothing.
  template <class Ended>
  std::string launch(std::vector<device::Launch>& launches, Ended&& ended) {
    return launch(kernel(), launches, ended);
  }
  template <class L, class Ended>
  std::string launch(const void* kernel, std::vector<L>& launches, Ended&& ended) {
    schedule_ = choose_schedule(random_);
    std::string wrong;
    const std::string report = world_.run(kernel, launches, schedule_, [&](std::size_t rank) {
      if (wrong.empty()) wrong = fault_of(static_cast<int>(rank));
      if (wrong.empty()) wrong = ended(static_cast<int>(rank));
    });
    return describe(wrong.empty() ? report : wrong);
  }

  const void* kernel() const {
    const cuda::Kernels kernels = cuda::soft_kernels();
    return is_fifo() ? kernels.fifo[static_cast<int>(kernel_)] : kernels.window;
  }

  std::string fault_of(int rank) {
    const device::Fault& fault = world_.page(rank).fault;
    if (fault.is_set == 0) return "";
    return fmt::format("rank {} gave up at step {} of rank {} channel {}: fault {}", rank, fault.step, fault.peer,
                       fault.channel, static_cast<int>(fault.kind));
  }

  std::string describe(const std::string& wrong) const {
    if (wrong.empty()) return wrong;
    return fmt::format("{}\n  seed {} launch {} of {} from step {}: {} ranks, {} slots, {}{}: {}", wrong, seed_,
                       launch_, kKernelNames[static_cast<int>(kernel_)], start_, shape_.ranks, shape_.fifo.slots,
                       name_of(schedule_.policy), schedule_.weak ? " weak" : "", what_);
  }

  KernelUnderTest kernel_;
  std::uint64_t seed_, start_ = 0, launch_ = 0;
  simt::Random random_;
  WorldShape shape_;
  DeviceWorld world_;
  simt::Options schedule_;
  std::string what_;
};

std::string explore_history(std::uint64_t seed) {
  simt::Random random(seed);
  const int ranks = 2 + static_cast<int>(random.below(3));
  DeviceWorld world({.ranks = ranks, .threads = 32});
  std::vector<device::Launch> launches;
  for (int rank = 0; rank < ranks; ++rank) launches.push_back(world.launch(rank));
  const simt::Options schedule = choose_schedule(random);
  const std::string wrong = world.run(history_kernel(), launches, schedule);
  if (wrong.empty()) return wrong;
  return fmt::format("{}\n  seed {} history: {} ranks, {}{}", wrong, seed, ranks, name_of(schedule.policy),
                     schedule.weak ? " weak" : "");
}

}  // namespace

std::string explore(KernelUnderTest kernel, std::uint64_t seed) {
  if (kernel == KernelUnderTest::history) return explore_history(seed);
  return Explorer(kernel, seed).run();
}

}  // namespace rondo::test
