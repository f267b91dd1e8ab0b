// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/simulated/job.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "comm/base/system_error.hpp"
#include "comm/transport/lost_peer.hpp"

namespace rondo::comm::test {
namespace {

constexpr FifoShape kShape{.slots = 2, .slice_bytes = 64, .ring_bytes = 48 << 10};
constexpr int kNobodysPid = 1 << 23;  // no kernel gives such a number to a process

std::array<Fd, 2> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) throw_errno("no socket pair");
  return {Fd(ends[0]), Fd(ends[1])};
}
Fd event() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw_errno("no eventfd");
  return fd;
}

Signature signature_of_call(int which, bool is_odd, std::uint64_t past) {
  return {.sequence = static_cast<std::uint64_t>(which),
          .count = 100,
          .collective = Collective::all_reduce,
          .dtype = is_odd ? DataType::i32 : DataType::f32,
          .op = ReduceOp::Kind::sum,
          .past = past};
}

}  // namespace

Job::Job(World& world, std::vector<int> node_of_rank, milliseconds longest_delay, milliseconds monitor_lag)
    : world_(world), node_of_(std::move(node_of_rank)), longest_delay_(longest_delay), monitor_lag_(monitor_lag) {
  const int n = static_cast<int>(node_of_.size());
  nodes_.resize(1 + static_cast<std::size_t>(*std::ranges::max_element(node_of_)));
  for (int number = 0; number < n; ++number) {
    Process& process = world_.add_process();
    process.set_silence([this, number](int socket) { return silence(number, socket); });
    Rank& made = *ranks_.emplace_back(std::make_unique<Rank>(Rank{.number = number}));
    made.came.resize(node_of_.size());
    made.last_sent.resize(node_of_.size());
    made.controls.resize(node_of_.size());
    for (int peer = 0; peer < n; ++peer) {
      made.steps.push_back(event());
      made.sockets.push_back({made.steps.back().get(), peer, true});
    }
    made.process = event();
  }
  make_nodes();
  for (int number = 0; number < n; ++number) rank(number).team = std::make_unique<Team>(parts_of(number));
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      if (a < b && apart(a, b)) connect(a, b);
      if (a != b && !apart(a, b)) {
        rank(a).team->add_process(b, std::make_shared<Fd>(::dup(rank(b).process.get())));
      }
    }
  }
  world_.set_after_step([this](Process& process) {
    for (int r = 0; r < size(); ++r) {
      if (&world_.process(r) == &process) carry_words(r);
    }
  });
}

// Whoever was killed leaves when nobody is there any more to see it.
Job::~Job() {
  world_.set_after_step([](Process&) {});
  for (const auto& one : ranks_) one->controls.clear();
  for (const auto& one : ranks_) one->team.reset();
}

int Job::nodes() const { return static_cast<int>(nodes_.size()); }

void Job::make_nodes() {
  for (const int node : node_of_) ++nodes_[static_cast<std::size_t>(node)].ranks;
  for (Node& node : nodes_) {
    node.memory = map_anonymous(Segment::bytes(node.ranks, kShape));
    node.segment = Segment(node.memory.data(), node.ranks, kShape);
    node.bells = std::make_shared<std::vector<Fd>>();
    for (int bell = 0; bell < node.ranks * static_cast<int>(kLanes); ++bell) node.bells->push_back(event());
  }
}

Team::Parts Job::parts_of(int number) {
  const Node& node = nodes_[static_cast<std::size_t>(node_of(number))];
  Team::Parts parts;
  parts.rank = number;
  std::vector<int> placed(nodes_.size());
  for (int r = 0; r < size(); ++r) {
    const int local = placed[static_cast<std::size_t>(node_of(r))]++;
    const bool near = !apart(r, number);
    parts.placement.push_back({.node = node_of(r),
                               .local_rank = local,
                               .segment_index = near ? local : -1,
                               .watched = nodes_[static_cast<std::size_t>(node_of(r))].ranks > 1,
                               .host = fmt::format("host{}", node_of(r)),
                               .pid = kNobodysPid + r});
  }
  parts.segment = node.segment;
  parts.bells = Doorbells(node.segment, node.bells);
  parts.crowded = true;
  parts.monitor = world_.process(number).monitor();
  parts.system = &world_.process(number);
  return parts;
}

void Job::connect(int a, int b) {
  auto [own_a, sim_a] = socket_pair();
  auto [own_b, sim_b] = socket_pair();
  const auto give = [&](int whose, int peer, Fd own) {
    Rank& self = rank(whose);
    self.sockets.push_back({own.get(), peer, false});
    self.team->add_control(peer, std::move(own));
    std::array<Fd, 2> pulses = socket_pair();
    for (const Fd& pulse : pulses) self.sockets.push_back({pulse.get(), peer, false});
    self.team->add_pulses(peer, std::move(pulses));
  };
  give(a, b, std::move(own_a));
  give(b, a, std::move(own_b));
  rank(a).controls[static_cast<std::size_t>(b)] = Control{.socket = std::move(sim_a)};
  rank(b).controls[static_cast<std::size_t>(a)] = Control{.socket = std::move(sim_b)};
}

void Job::start() {
  for (const auto& one : ranks_) {
    one->team->start();
    world_.process(one->number).run([this, self = one.get()] { live(*self); });
  }
}

// ---- what befalls ----

void Job::kill(int number, bool loses_what_is_under_way) {
  Process& process = world_.process(number);
  if (process.killed() || process.ended()) return;
  process.kill();
  rank(number).dropped_at = loses_what_is_under_way ? world_.now() : Time::max();
  eventfd_write(rank(number).process.get(), 1);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != number && !apart(peer, number)) {
      world_.after(milliseconds(world_.draw(0, 1)), [this, peer] { world_.process(peer).has_news(); });
    }
  }
  end_connections(number);
}

void Job::stop(int number, bool is_stopped) {
  Process& process = world_.process(number);
  if (process.killed() || process.ended()) return;
  is_stopped ? process.stop() : process.go_on();
}

void Job::cut(int number, bool is_cut) {
  Node& node = nodes_[static_cast<std::size_t>(number)];
  if (node.is_cut == is_cut) return;
  node.is_cut = is_cut;
  node.cut_at = world_.now();
  if (is_cut) return;
  for (const auto& again : std::exchange(held_back_, {})) again();
}

bool Job::reaches(int a, int b) const {
  const auto cut = [&](int r) { return nodes_[static_cast<std::size_t>(node_of(r))].is_cut; };
  return !apart(a, b) || (!cut(a) && !cut(b));
}

std::optional<System::Silence> Job::silence(int number, int socket) {
  const Rank& self = rank(number);
  const auto [_, peer, carries_steps] = *std::ranges::find(self.sockets, socket, &Socket::descriptor);
  const auto& came = self.came[static_cast<std::size_t>(peer)];
  const bool steps_end = !came.empty() && came.back().end;
  if (carries_steps ? steps_end : self.controls[static_cast<std::size_t>(peer)]->ended) return std::nullopt;
  if (reaches(number, peer)) return System::Silence{};
  Time since{};
  for (const int r : {number, peer}) {
    const Node& node = nodes_[static_cast<std::size_t>(node_of(r))];
    if (node.is_cut) since = std::max(since, node.cut_at);
  }
  return System::Silence{std::chrono::duration_cast<milliseconds>(world_.now() - since), false};
}

// ---- a rank ----

void Job::live(Rank& self) {
  try {
    go_through(self);
  } catch (const Error& error) {
    self.part.error = error;
  }
  Process& process = world_.process(self.number);
  self.part.ended_at = world_.now();
  process.nap(self.part.lingers);
  self.team.reset();
  end_connections(self.number);
}

void Job::go_through(Rank& self) {
  Part& part = self.part;
  Process& process = world_.process(self.number);
  for (int which = 1; which <= part.calls; ++which) {
    if (part.leaves_after == part.done) return;
    if (part.aborts_after == part.done) {
      self.team->abort();
      throw self.team->failure().error();
    }
    const auto most = static_cast<std::uint64_t>(part.computes.count());
    process.nap(part.late_call == which ? 2 * kDeadline : milliseconds(world_.draw(0, most)));
    guarded(self, [&] { call(self, which); });
    ++part.done;
  }
}

// As a communicator does.
template <class Body>
void Job::guarded(Rank& self, Body body) {
  const auto throw_failure = [&] {
    const Error error = self.team->failure().error();
    self.team->pass_on_failure();
    throw error;
  };
  if (self.team->failure().raised()) throw_failure();
  try {
    body();
  } catch (const Error& error) {
    if (error.error_code() == ErrorCode::peer_lost && error.culprit() >= 0) self.team->await_verdict(error.culprit());
    self.team->fail(error);
    throw_failure();
  }
}

void Job::call(Rank& self, int which) {
  const Signature mine = signature_of_call(which, self.part.odd_call == which, self.past);
  self.past = 31 * self.past + hash_of(mine) + 1;
  write_history(self.team->own_line().calls, mine);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != self.number) send(self, peer, {mine});
  }
  Config config;
  config.spin = config.yields = 0;
  Waiter waiter(*self.team, config);
  waiter.begin(mine, true, kDeadline);
  std::vector<bool> has_come(ranks_.size());
  has_come[static_cast<std::size_t>(self.number)] = true;
  for (;;) {
    std::vector<Blocked> blocked;
    for (int peer = 0; peer < size(); ++peer) {
      if (has_come[static_cast<std::size_t>(peer)]) continue;
      if (take(self, mine, peer)) {
        has_come[static_cast<std::size_t>(peer)] = true;
        waiter.progressed();
        continue;
      }
      const int socket = self.steps[static_cast<std::size_t>(peer)].get();
      blocked.push_back({peer, apart(peer, self.number) ? Wake{Wake::By::descriptor, socket, POLLIN} : Wake{}});
    }
    if (blocked.empty()) break;
    waiter.idle(blocked);
  }
  waiter.progressed();
}

// Whether a step has come from there.
bool Job::take(Rank& self, const Signature& mine, int peer) {
  std::deque<Step>& came = self.came[static_cast<std::size_t>(peer)];
  if (came.empty()) return false;
  if (came.front().end) throw_lost(peer, 0);
  const Signature theirs = came.front().signature;
  came.pop_front();
  if (theirs == mine) return true;
  const Difference difference = self.team->find_difference(mine, peer, theirs);
  if (difference.empty()) throw Error(ErrorCode::corrupt_message, "steps differ and calls do not", peer);
  throw self.team->judge(difference);
}

// ---- between them ----

Time Job::arrival(Time& last) {
  const auto longest = static_cast<std::uint64_t>(std::chrono::microseconds(longest_delay_).count());
  return last = std::max(last, world_.now() + std::chrono::microseconds(world_.draw(1, longest)));
}

void Job::send(Rank& self, int peer, const Step& step) {
  const int from = self.number;
  if (!apart(from, peer)) {
    rank(peer).came[static_cast<std::size_t>(from)].push_back(step);
    self.team->bells().wake(self.team->placement(peer).segment_index);
    return;
  }
  world_.at(arrival(self.last_sent[static_cast<std::size_t>(peer)]),
            [this, from, peer, step] { arrive(from, peer, step); });
}

void Job::arrive(int from, int to, const Step& step) {
  if (!reaches(from, to)) {
    held_back_.emplace_back([this, from, to, step] { arrive(from, to, step); });
    return;
  }
  if (rank(from).dropped_at < world_.now() && !step.end) return;
  rank(to).came[static_cast<std::size_t>(from)].push_back(step);
  world_.process(to).look_soon();
}

// All that its team has written to control connections since the last time.
void Job::carry_words(int number) {
  Rank& self = rank(number);
  for (int peer = 0; peer < size(); ++peer) {
    const auto& control = self.controls[static_cast<std::size_t>(peer)];
    if (!control) continue;
    std::array<char, 4096> bytes;
    for (ssize_t got; (got = ::recv(control->socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0;) {
      if (world_.process(number).killed()) continue;
      const bool dies = self.bytes_left >= 0 && got >= self.bytes_left;
      const long carried = dies ? self.bytes_left : got;
      if (carried > 0) carry(number, peer, {bytes.data(), static_cast<std::size_t>(carried)}, false);
      if (self.bytes_left >= 0) self.bytes_left -= carried;
      if (dies) kill(number, false);
    }
  }
}

void Job::carry(int from, int to, std::string bytes, bool end) {
  Rank& self = rank(from);
  Time& last = self.controls[static_cast<std::size_t>(to)]->last;
  if (bytes.size() > 1 && world_.draw(0, 3) == 0) {
    const std::size_t half = world_.draw(1, bytes.size() - 1);
    carry(from, to, bytes.substr(0, half), false);
    bytes.erase(0, half);
  }
  world_.at(arrival(last), [this, from, to, bytes, end] { deliver(from, to, bytes, end); });
}

void Job::deliver(int from, int to, const std::string& bytes, bool end) {
  if (!reaches(from, to)) {
    held_back_.emplace_back([this, from, to, bytes, end] { deliver(from, to, bytes, end); });
    return;
  }
  auto& control = rank(to).controls[static_cast<std::size_t>(from)];
  if (rank(from).dropped_at < world_.now() && !end) return;
  if (end) {
    control->ended = true;
    ::shutdown(control->socket.get(), SHUT_WR);
  }
  if (!bytes.empty() && ::send(control->socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE) {
    throw_errno("a simulated rank reads nothing");
  }
  const auto longest = static_cast<std::uint64_t>(std::chrono::microseconds(monitor_lag_).count());
  world_.after(std::chrono::microseconds(world_.draw(0, longest)), [this, to] { world_.process(to).has_news(); });
}

void Job::end_connections(int number) {
  Rank& self = rank(number);
  carry_words(number);
  for (int peer = 0; peer < size(); ++peer) {
    if (!apart(peer, number)) continue;
    carry(number, peer, {}, true);
    send(self, peer, {.end = true});
  }
}

}  // namespace rondo::comm::test
