// SPDX-License-Identifier: Apache-2.0
// Communicators that take in processes which wait for that: rank 0 gets them from the recruiter, all meet over the
// store, and the members find out over the communicator that they have whether all of them have the new one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/base/bytes.hpp"
#include "comm/base/duration.hpp"
#include "comm/base/log.hpp"
#include "comm/base/majority.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/setup/absences.hpp"
#include "comm/setup/create.hpp"
#include "comm/setup/growth_word.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};  // of rank 0 at its communicator, of all at the growth
constexpr std::chrono::seconds kForWord{10};             // of another rank, beyond the deadline that it has

// What `action` throws, as an Error.
template <class Action>
std::optional<Error> error_of(Action action) {
  try {
    action();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::system, fmt::format("cannot grow: {}", reason_of(error)));
  }
}

// All have made the new communicator, or none that hears of it in time. `made` may be there also where this throws.
void meet(Communicator& made, Bootstrap bootstrap, const Growth& growth, const Options& options,
          const Lookout& lookout = {}) {
  bootstrap.name = growth.name;
  bootstrap.generation = growth.generation;
  bootstrap.job_ranks = growth.job_ranks;
  bootstrap.world_size = static_cast<int>(growth.job_ranks.size());
  const std::shared_ptr<Store> place = bootstrap.store;
  const std::shared_ptr<Recruiter> recruiter = bootstrap.recruiter;
  const int rank = bootstrap.rank, world_size = bootstrap.world_size;
  const auto deadline = *bootstrap.deadline;
  auto last_look = std::chrono::steady_clock::now();
  const auto failed = error_of([&] {
    made = connect(std::move(bootstrap), *place, options, [&] {
      if (lookout) lookout();
      const auto now = std::chrono::steady_clock::now();
      if (now - last_look < kBetweenLooks) return;
      last_look = now;
      recruiter->check(growth);
    });
    place->exchange(growth.key() + "/made", rank, world_size, {}, deadline);
  });
  if (!failed) return;
  recruiter->give_up(growth, *failed);
  throw Error(*failed);
}

// The last step: a joiner has the communicator when it knows that every member has it.
void come_together(Communicator& made, std::chrono::milliseconds timeout) {
  detail::impl_of(made).submit_on_host({.collective = Collective::barrier, .timeout = timeout + kForWord});
}

std::chrono::milliseconds left_until(Store::Deadline deadline) {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(rest, std::chrono::milliseconds(0));
}

class Growing {
 public:
  Growing(detail::CommunicatorImpl& parent, int world_size, std::chrono::milliseconds timeout)
      : parent_(parent),
        world_size_(world_size),
        timeout_(timeout.count() == 0 ? parent.options().join_timeout : timeout),
        deadline_(deadline_after(timeout_)) {}

  Communicator run() {
    check_place();
    agree();
    const Growth growth = hear_of_joiners();
    if (growth.name.empty()) return {};
    Bootstrap bootstrap = parent_.bootstrap();
    bootstrap.driver = parent_.driver();
    bootstrap.deadline = deadline_;
    Communicator made;
    GrowthWord own{.growth = growth};
    // A member that is lost while the server is away is not heard of otherwise.
    std::optional<Absences> absences;
    absences.emplace(
        parent_.team(),
        [recruiter = bootstrap.recruiter, &growth](std::span<const int> missing) {
          recruiter->missing(growth, missing);
        },
        Absences::Stopped::awaited);
    own.error = error_of([&] {
      meet(made, std::move(bootstrap), growth, parent_.options(), [this] { parent_.team().failure().check(); });
    });
    absences.reset();
    if (own.error) made = {};  // those who have it hear of that
    for (const Store::Bytes& said : hear_from_all(own, growth)) {
      if (const GrowthWord word = GrowthWord::decode(said); word.error) throw Error(*word.error);
    }
    // All members had it. Whoever is lost from here on is a lost rank of it, which its next call says; but some may not
    // have heard that all had it, and come back to the smaller one, as all then do (rendezvous/survivals.cpp).
    if (const auto lost = error_of([&] { come_together(made, left()); })) {
      log::info("{}: {}", growth.key(), lost->what());
      detail::impl_of(made).ancestry().doubt(growth.key(), parent_.ancestry().own());
    }
    return made;
  }

 private:
  void check_place() const {
    if (!parent_.team().monitor())
      throw Error(ErrorCode::unsupported, "grow: ranks that are threads of one process cannot let others join");
    if (!parent_.bootstrap().recruiter) {
      throw Error(ErrorCode::unsupported,
                  "grow: this communicator was made where no other process can wait to join: make it by rondorun, a "
                  "tcp:// or file:// url, or MASTER_ADDR and MASTER_PORT");
    }
  }

  // Ranks that want different worlds learn of it here; for how long to wait, rank 0 says.
  void agree() {
    std::vector<int> sizes;
    const auto said = parent_.all_gather_bytes(ByteWriter().number(world_size_).number(timeout_.count()).take());
    for (const Store::Bytes& bytes : said) {
      ByteReader in(bytes);
      sizes.push_back(in.number<int>());
      const auto timeout = std::chrono::milliseconds(in.number<std::int64_t>());
      if (sizes.size() == 1) deadline_ = deadline_after(timeout);
    }
    if (const Majority majority = find_majority_of(sizes); !majority.others.empty()) {
      const auto usual = static_cast<std::size_t>(majority.most.front()),
                 odd = static_cast<std::size_t>(majority.others.front());
      throw mismatch_of(majority, fmt::format("grow: rank {} asked for a world of {} where rank {} asked for {}", odd,
                                              sizes[odd], usual, sizes[usual]));
    }
    if (world_size_ == 0 || (world_size_ > parent_.world_size() && world_size_ <= kMostRanks)) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("grow: {} ranks cannot become a world of {}: it takes more than there are and {} at most, "
                            "or 0 for whoever waits to join",
                            parent_.world_size(), world_size_, kMostRanks));
  }

  std::vector<Store::Bytes> hear_from_all(const GrowthWord& own, const Growth& growth) {
    try {
      return parent_.all_gather_bytes(own.encode(), left() + kForWord);
    } catch (const Error&) {  // others may have heard all
      parent_.ancestry().give_up(growth.key());
      throw;
    }
  }

  std::chrono::milliseconds left() const { return left_until(deadline_); }

  // Rank 0 looks at its own communicator now and then: the others may be gone, or have aborted it.
  Growth admit() {
    const Bootstrap& bootstrap = parent_.bootstrap();
    const int joiners = world_size_ == 0 ? 0 : world_size_ - parent_.world_size();
    for (;;) {
      parent_.team().failure().check();
      const auto until = std::min(deadline_, std::chrono::steady_clock::now() + kBetweenLooks);
      try {
        return bootstrap.recruiter->admit(bootstrap.job_ranks, joiners, bootstrap.generation + 1, until);
      } catch (const Error& error) {
        if (error.error_code() != ErrorCode::timeout || until == deadline_) throw;
      }
    }
  }

  // The others wait for rank 0's word. What it says nobody may have heard: then the joiners must not wait for them.
  Growth hear_of_joiners() {
    GrowthWord word;
    if (parent_.rank() == 0) word.error = error_of([&] { word.growth = admit(); });
    const auto unheard = error_of([&] {
      std::uint64_t bytes = 0;
      Store::Bytes text;
      if (parent_.rank() == 0) text = word.encode();
      bytes = text.size();
      broadcast(&bytes, sizeof bytes);
      text.resize(bytes);
      broadcast(text.data(), text.size());
      word = GrowthWord::decode(text);
    });
    if (unheard && !word.growth.name.empty()) parent_.bootstrap().recruiter->give_up(word.growth, *unheard);
    if (unheard) throw Error(*unheard);
    if (word.error) throw Error(*word.error);
    return word.growth;
  }

  void broadcast(void* data, std::size_t bytes) {
    parent_.submit_on_host({.collective = Collective::broadcast,
                            .send = data,
                            .recv = data,
                            .count = bytes,
                            .dtype = DataType::u8,
                            .root = 0,
                            .timeout = left() + kForWord});
  }

  detail::CommunicatorImpl& parent_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  Store::Deadline deadline_;
};

}  // namespace

Communicator grow(detail::CommunicatorImpl& parent, int world_size, std::chrono::milliseconds timeout) {
  return Growing(parent, world_size, timeout).run();
}

}  // namespace rondo::comm

namespace rondo {

Communicator join_growth(Bootstrap bootstrap, const Options& options) {
  const Growth growth = std::exchange(bootstrap.growth, {});
  if (!bootstrap.deadline) bootstrap.deadline = deadline_after(options.join_timeout);
  const auto deadline = *bootstrap.deadline;
  Communicator made;
  try {
    comm::meet(made, std::move(bootstrap), growth, checked(options));
    comm::come_together(made, comm::left_until(deadline));
  } catch (...) {  // the members may have it, and would wait for this process when they ask who has survived
    if (made) detail::impl_of(made).team().give_up();
    throw;
  }
  return made;
}

}  // namespace rondo
