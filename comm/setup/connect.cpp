// SPDX-License-Identifier: Apache-2.0
// Processes meet: everybody advertises through the store, ranks of a node exchange descriptors, the others connect.
// What peers can observe is rank 0's choice for all.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "comm/base/bytes.hpp"
#include "comm/base/duration.hpp"
#include "comm/base/limits.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/process_descriptor.hpp"
#include "comm/base/process_state.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/hierarchy/nodes.hpp"
#include "comm/setup/agreement.hpp"
#include "comm/setup/card.hpp"
#include "comm/setup/copy_probe.hpp"
#include "comm/setup/create.hpp"
#include "comm/setup/first_ranks.hpp"
#include "comm/setup/loss_word.hpp"
#include "comm/setup/placement.hpp"
#include "comm/setup/transport_choice.hpp"
#include "comm/transport/memory.hpp"
#include "comm/transport/mesh.hpp"
#include "comm/transport/node_meeting.hpp"
#include "comm/transport/process_memory.hpp"
#include "comm/transport/shm_link.hpp"
#include "kernels/thread.hpp"

namespace rondo::comm {
namespace {

using Bytes = Store::Bytes;

ProcessFacts find_facts(const Options& options) {
  return {.node = node_identity(options.node),
          .host = host_name(),
          .pid_namespace = pid_namespace(),
          .quota = within_quota(INT32_MAX)};
}

class Connecting {
 public:
  Connecting(Bootstrap bootstrap, Store& place, const Options& options, Lookout lookout, Obstacles obstacles)
      : bootstrap_(std::move(bootstrap)),
        place_(place),
        options_(options),
        known_(bootstrap_.transports != nullptr ? *bootstrap_.transports : transports()),
        config_(Config::from_environment(known_)),
        given_lookout_(std::move(lookout)),
        obstacles_(std::move(obstacles)),
        deadline_(std::exchange(bootstrap_.deadline, {}).value_or(deadline_after(options.join_timeout))),
        name_(fmt::format("{}@{}", bootstrap_.name, bootstrap_.generation)),
        mesh_({.rank = bootstrap_.rank,
               .world_size = bootstrap_.world_size,
               .name = bootstrap_.name,
               .generation = bootstrap_.generation,
               .addresses = bootstrap_.addresses,
               .first_port = bootstrap_.first_port,
               .last_port = bootstrap_.last_port,
               .authenticator = bootstrap_.authenticator,
               .encryption = bootstrap_.encryption}),
        meeting_(bootstrap_.rank, name_, bootstrap_.authenticator) {
    for (const Transport& row : known_) connectors_.push_back(row.open(bootstrap_));
  }

  Communicator run() {
    exchange_cards();
    agree(cards_, bootstrap_.rank, known_, config_, options_);
    place();
    share_memory();
    choice_.check();
    mind_crowds();
    auto team = std::make_unique<Team>(parts());
    connect_peers(*team);
    watch_node(*team);
    team->start();
    if (bootstrap_.rank == 0) log_transports(*team);
    auto impl = std::make_unique<detail::CommunicatorImpl>(std::move(team), std::move(bootstrap_), options_, config_);
    impl->attach_device();
    return Communicator(std::move(impl));
  }

  // The ranks of a split hear it over their parent.
  Error cause_of(const Error& error) const { return obstacles_.tell ? error : lost_.cause_of(error); }

 private:
  int size() const { return bootstrap_.world_size; }
  const Card& card(int rank) const { return cards_[static_cast<std::size_t>(rank)]; }
  Placement& placement(int rank) { return placement_[static_cast<std::size_t>(rank)]; }

  std::vector<Bytes> exchange(std::string_view what, const Bytes& value) {
    return place_.exchange(fmt::format("{}/{}", name_, what), bootstrap_.rank, size(), value, deadline_);
  }

  void exchange_cards() {
    if (!bootstrap_.facts) bootstrap_.facts = find_facts(options_);
    const ProcessFacts& facts = *bootstrap_.facts;
    Card own{.node = facts.node,
             .host = facts.host,
             .pid_namespace = facts.pid_namespace,
             .transport = config_.transport,
             .algorithm = config_.algorithm,
             .protocol = config_.protocol,
             .tuning = to_text(config_.tuning),
             .device = options_.device.kind,
             .pid = ::getpid(),
             .quota = facts.quota,
             .determinism = options_.determinism,
             .slice_bytes = config_.slice_bytes,
             .slots = config_.slots,
             .segment_bytes = config_.segment_bytes,
             .link_patience_ms = config_.link_patience_ms,
             .encrypts = bootstrap_.encryption != nullptr,
             .cores = usable_core_mask(),
             .mesh = mesh_.advertisement(),
             .meeting = meeting_.advertisement()};
    probe_.describe(own);
    for (const auto& connector : connectors_) own.advertised.push_back(connector->advertise());
    for (const Bytes& bytes : exchange("cards", own.encode())) cards_.push_back(Card::decode(bytes, known_.size()));
  }

  void place() {
    std::map<std::string, int> nodes, ranks_on_node;
    for (int r = 0; r < size(); ++r) {
      const int node = nodes.emplace(card(r).node, static_cast<int>(nodes.size())).first->second;
      placement_.push_back({.node = node,
                            .local_rank = ranks_on_node[card(r).node]++,
                            .segment_index = -1,
                            .host = card(r).host,
                            .pid = card(r).pid});
    }
    int most = 1;
    for (const auto& [node, count] : ranks_on_node) most = std::max(most, count);
    shape_ = fit_fifos(config_, choice_.wants_memory() ? most : 1);
    for (int r = 0; r < size(); ++r) {
      if (placement(r).node == placement(bootstrap_.rank).node) neighbours_.push_back(r);
    }
    std::map<std::pair<std::string_view, std::string_view>, int> seen;
    for (const Card& c : cards_) ++seen[{c.node, c.pid_namespace}];
    for (int r = 0; r < size(); ++r) placement(r).watched = seen[{card(r).node, card(r).pid_namespace}] > 1;
    for (const int r : neighbours_) {
      if (r == bootstrap_.rank || card(r).pid_namespace != card(bootstrap_.rank).pid_namespace) continue;
      auto process = open_process(card(r).pid);
      placement_[static_cast<std::size_t>(r)].visible = process != nullptr;
      if (process) processes_.emplace_back(std::move(process), r);
    }
    cores_ = count_usable_cores();
    crowded_ = static_cast<int>(neighbours_.size()) > cores_;
  }

  // What keeps a rank from sharing memory; `lost`: it only lost another, whose own obstacle says more.
  struct Obstacle {
    std::string sentence{};
    bool lost = false;
  };
  // Whoever dies while the others of its node wait for it ends the meeting for them. Nobody goes on to anything else
  // before all have met there.
  void look_out() const {
    if (given_lookout_) given_lookout_();
    for (const auto& [process, rank] : processes_) {
      pollfd ended{process->get(), POLLIN, 0};
      if (::poll(&ended, 1, 0) <= 0) continue;
      throw Error(ErrorCode::peer_lost,
                  fmt::format("rank {} (host {}, pid {}) is lost: its process {} while the ranks met", rank,
                              card(rank).host, card(rank).pid, how_it_ended(card(rank).pid, process->get())),
                  rank);
    }
  }

  // A rank that cannot share memory says so to those of its node, who wait for it.
  std::string obstacle_key() const { return fmt::format("{}/obstacle/{}", name_, neighbours_.front()); }
  void tell_obstacle(const std::string& obstacle) {
    if (obstacles_.tell) return obstacles_.tell();
    try {
      bootstrap_.store->set(obstacle_key(), {});
    } catch (...) {  // whose error would be all that is known of it
      log::warn("rank {} cannot share memory: {}", bootstrap_.rank, obstacle);
      throw;
    }
  }
  // Of the store, now and then. Throws when that is gone, which is mostly rank 0's, and what a rank of these has lost.
  bool knows_obstacle() {
    if (obstacles_.has_told) return std::any_of(neighbours_.begin(), neighbours_.end(), obstacles_.has_told);
    constexpr std::chrono::milliseconds kBetween{100};
    const auto now = std::chrono::steady_clock::now();
    if (now - last_look_ < kBetween) return false;
    last_look_ = now;
    if (const auto error = lost_.said()) throw Error(*error);
    return bootstrap_.store->try_get(obstacle_key()).has_value();
  }

  // The node's ranks meet, and everybody learns whether they did: a node where one could not takes a transport without.
  void share_memory() {
    Obstacle own{"no transport in use shares memory"};
    if (choice_.wants_memory()) own = neighbours_.size() > 1 ? meet(neighbours_) : Obstacle{};
    const std::string no_copies = own.sentence.empty() ? find_copy_obstacle() : own.sentence;
    const double page_us = no_copies.empty() && neighbours_.size() > 1 ? copied_page() : 0;
    std::vector<Obstacle> obstacles;
    const auto words = ByteWriter().text(own.sentence).number(own.lost).text(no_copies).number(page_us).take();
    for (const Bytes& said : exchange("shared", words)) {
      ByteReader in(said);
      const int r = static_cast<int>(obstacles.size());
      Obstacle& theirs = obstacles.emplace_back();
      theirs.sentence = in.text();
      theirs.lost = in.number<bool>();
      if (placement(r).node != placement(bootstrap_.rank).node) continue;
      mind_copy_obstacle(in.text());
      copied_page_us_ = std::max(copied_page_us_, in.number<double>());
    }
    mind_obstacles(obstacles);
    if (placement(bootstrap_.rank).shares_memory && neighbours_.size() > 1) return;
    neighbours_ = {bootstrap_.rank};
    descriptors_ = meet_alone();
  }

  void mind_obstacles(const std::vector<Obstacle>& obstacles) {
    const int node = placement(bootstrap_.rank).node;
    int speaker = -1;  // of this node: the rank whose obstacle is told
    for (int r = 0; r < size(); ++r) {
      const Obstacle& theirs = obstacles[static_cast<std::size_t>(r)];
      if (theirs.sentence.empty()) continue;
      for (Placement& other : placement_) other.shares_memory = other.shares_memory && other.node != placement(r).node;
      if (placement(r).node != node) continue;
      if (speaker < 0 || (obstacles[static_cast<std::size_t>(speaker)].lost && !theirs.lost)) speaker = r;
    }
    if (speaker < 0 || !choice_.wants_memory()) return;
    const std::string& why = obstacles[static_cast<std::size_t>(speaker)].sentence;
    if (!config_.transport.empty()) {
      throw Error(
          ErrorCode::unsupported,
          fmt::format("RONDO_TRANSPORT={}, but rank {} cannot share memory: {}", config_.transport, speaker, why),
          speaker);
    }
    const Transport* instead = choice_.find(neighbours_.front(), neighbours_.back());
    if (speaker == bootstrap_.rank && instead != nullptr)
      log::warn("the ranks of rank {}'s node cannot share memory and use {}: {}", speaker, instead->name, why);
  }

  // Why the kernel does not copy between this process and a neighbour; empty: it does, both ways.
  std::string find_copy_obstacle() const {
    for (const int r : neighbours_) {
      if (r == bootstrap_.rank) continue;
      std::string obstacle = probe_.obstacle(card(bootstrap_.rank), bootstrap_.rank, card(r), r);
      if (!obstacle.empty()) return obstacle;
    }
    return {};
  }

  double copied_page() {
    auto& known_us = bootstrap_.facts->copied_page_us;
    if (!known_us) known_us = copied_page_us();
    return *known_us;
  }

  void mind_copy_obstacle(const std::string& obstacle) {
    if (obstacle.empty() || !copies_memory_) return;
    copies_memory_ = false;
    log::debug("rank {}: no single copies by the kernel: {}", bootstrap_.rank, obstacle);
  }

  // Of this node's ranks, which may be bound to one each, as far as no quota leaves fewer.
  int count_usable_cores() const {
    std::vector<Bytes> masks;
    int quota = 1;
    for (const int r : neighbours_) {
      masks.push_back(card(r).cores);
      quota = std::max(quota, card(r).quota);
    }
    return std::min(count_cores(masks), quota);
  }

  // Every rank comes to the same rows: the file's first, then those for crowds, then the built-in ones.
  // Links between hosts carry what rank 0 sends to all at their own rate: no crowd's way.
  void mind_crowds() {
    const bool one_host = std::all_of(placement_.begin(), placement_.end(),
                                      [&](const Placement& p) { return p.node == placement_[0].node; });
    if (!one_host || !crowded_ || placement_[0].shares_memory) return;
    auto& rows = config_.tuning.links;
    rows.insert(rows.end(), std::begin(kernels::kCrowdedTuner), std::end(kernels::kCrowdedTuner));
  }

  Obstacle meet(const std::vector<int>& ranks) {
    try {
      // Of every rank its doorbells, of every other a socket, the segment, and what Asio waits by.
      reserve_descriptors((kDoorbellsPerRank + 1) * ranks.size() + 3,
                          fmt::format("rank {} with {} ranks on its node", bootstrap_.rank, ranks.size()));
      std::vector<Bytes> advertisements;
      for (const Card& c : cards_) advertisements.push_back(c.meeting);
      descriptors_ = meeting_.meet(ranks, advertisements, Segment::bytes(static_cast<int>(ranks.size()), shape_),
                                   deadline_, [this] {
                                     look_out();
                                     if (knows_obstacle())
                                       throw Error(ErrorCode::peer_lost, "another rank of this node cannot");
                                   });
      memory_ =
          std::make_shared<Mapping>(map(descriptors_.segment, Segment::bytes(static_cast<int>(ranks.size()), shape_)));
      return {};
    } catch (const Error& error) {
      if (error.error_code() == ErrorCode::timeout) throw;
      look_out();
      const bool lost = error.error_code() == ErrorCode::peer_lost;
      if (!lost && ranks.size() > 1) tell_obstacle(error.what());
      return {error.what(), lost};
    }
  }
  // Shares with nobody, so it needs nothing that the system may deny for sharing.
  NodeDescriptors meet_alone() {
    memory_ = std::make_shared<Mapping>(map_anonymous(Segment::bytes(1, shape_)));
    NodeDescriptors descriptors;
    for (std::size_t i = 0; i < kDoorbellsPerRank; ++i) descriptors.doorbells.push_back(make_doorbell());
    return descriptors;
  }

  Team::Parts parts() {
    for (std::size_t i = 0; i < neighbours_.size(); ++i) placement(neighbours_[i]).segment_index = static_cast<int>(i);
    Team::Parts parts;
    parts.rank = bootstrap_.rank;
    parts.placement = placement_;
    parts.segment = Segment(memory_->data(), static_cast<int>(neighbours_.size()), shape_);
    parts.memory = memory_;
    parts.bells = Doorbells(parts.segment, std::make_shared<const std::vector<Fd>>(std::move(descriptors_.doorbells)));
    parts.cores = cores_;
    parts.crowded = crowded_;
    parts.copies_memory = copies_memory_;
    parts.copied_page_us = copied_page_us_;
    parts.monitor = Monitor::of_process();
    parts.link_patience = std::chrono::milliseconds(config_.link_patience_ms);
    return parts;
  }

  // Ranks that are not in one segment take a control connection, and a socket for links where their transport needs it.
  void connect_peers(Team& team) {
    const bool on_host = options_.device.kind == Device::Kind::cpu;  // devices' messages are their kernels'
    std::vector<const Transport*> rows;
    std::vector<MeshWish> wishes;
    for (int r = 0; r < size(); ++r) {
      const Transport* row = rows.emplace_back(r == bootstrap_.rank ? nullptr : choice_.find(bootstrap_.rank, r));
      const bool socket = row != nullptr && row->needs == Transport::Needs::socket;
      if (socket || !team.shares_memory(r))
        wishes.push_back({.rank = r,
                          .data = socket,
                          .messages = socket && on_host,
                          .pulses = placement(r).node != placement(bootstrap_.rank).node});
    }
    if (config_.encrypt && !bootstrap_.encryption && !wishes.empty()) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("RONDO_ENCRYPT=1, but rank {} has no key for its connections: it needs the job's secret",
                              bootstrap_.rank));
    }
    std::vector<SecuredSocket> sockets(rows.size()), message_sockets(rows.size());
    for (MeshPeer& peer : meet_over_sockets(wishes)) {
      sockets[static_cast<std::size_t>(peer.rank)] = {std::move(peer.data), std::move(peer.data_stream)};
      message_sockets[static_cast<std::size_t>(peer.rank)] = {std::move(peer.messages),
                                                              std::move(peer.messages_stream)};
      if (!team.shares_memory(peer.rank))
        team.add_control(peer.rank, std::move(peer.control), std::move(peer.control_stream));
      if (peer.pulses[0]) team.add_pulses(peer.rank, std::move(peer.pulses));
    }
    const int own = team.own_index();
    team.add_links(bootstrap_.rank, make_shm_links(team.segment(), team.bells(), own, own));  // to itself: no transport
    for (int r = 0; r < size(); ++r) {
      if (r == bootstrap_.rank) continue;
      const Transport& row = *rows[static_cast<std::size_t>(r)];
      team.add_links(r, link(team, r, row, Lane::collectives, std::move(sockets[static_cast<std::size_t>(r)])));
      if (on_host)
        team.add_message_links(
            r, link(team, r, row, Lane::messages, std::move(message_sockets[static_cast<std::size_t>(r)])));
    }
  }

  Links link(const Team& team, int peer, const Transport& row, Lane lane, SecuredSocket socket) {
    const bool messages = lane == Lane::messages;
    Connector& connector = *connectors_[static_cast<std::size_t>(&row - known_.data())];
    return connector.connect({.self = choice_.party(bootstrap_.rank, row),
                              .peer = choice_.party(peer, row),
                              .lane = lane,
                              .shape = messages ? shape_of_messages(shape_) : shape_,
                              .segment = messages ? team.segment().of_messages() : team.segment(),
                              .bells = messages ? team.bells().of_messages() : team.bells(),
                              .self_index = team.own_index(),
                              .peer_index = team.placement(peer).segment_index,
                              .socket = socket.stream ? Fd() : std::move(socket.socket),
                              .secured = std::move(socket)});
  }

  std::vector<MeshPeer> meet_over_sockets(const std::vector<MeshWish>& wishes) {
    if (wishes.empty()) return {};
    std::vector<Bytes> advertisements;
    for (const Card& c : cards_) advertisements.push_back(c.mesh);
    constexpr std::size_t kListening = 3, kOfPeer = 3, kPulses = 2;
    std::size_t sockets = kListening + kOfPeer * wishes.size();
    for (const MeshWish& wish : wishes) sockets += wish.pulses ? kPulses : 0;
    reserve_descriptors(sockets, fmt::format("rank {} with {} peers over tcp", bootstrap_.rank, wishes.size()));
    const auto lookout = [this] {
      look_out();
      knows_obstacle();
    };
    return mesh_.connect(advertisements, wishes, deadline_, lookout);
  }

  // A death shows in the sockets of the meeting and, where process ids mean the same, in a pidfd of every neighbour.
  void watch_node(Team& team) {
    for (NodePeer& peer : descriptors_.peers) team.add_watch(peer.rank, std::move(peer.socket));
    for (auto& [process, rank] : processes_) team.add_process(rank, std::move(process));
  }

  void log_transports(const Team& team) const {
    const auto last = std::max_element(placement_.begin(), placement_.end(),
                                       [](const auto& a, const auto& b) { return a.node < b.node; });
    log::info("{}: {} ranks on {} node(s): {}; {} slots of {} bytes per link, tuning {}", name_, size(), last->node + 1,
              choice_.describe(nodes_of(team).nested()), shape_.slots, shape_.slice_bytes, config_.tuning.source);
  }

  Bootstrap bootstrap_;
  Store& place_;
  Options options_;
  const Transports& known_;
  Config config_;
  Lookout given_lookout_;
  Obstacles obstacles_;
  std::chrono::steady_clock::time_point last_look_ = std::chrono::steady_clock::now();  // into the store
  Store::Deadline deadline_;
  std::string name_;
  LossWord lost_{place_, name_, bootstrap_.rank};
  Mesh mesh_;
  NodeMeeting meeting_;
  std::vector<std::unique_ptr<Connector>> connectors_;  // of known_
  std::vector<Card> cards_;
  std::vector<Placement> placement_;
  TransportChoice choice_{known_, config_.transport, cards_, placement_};
  std::vector<std::pair<std::shared_ptr<const Fd>, int>>
      processes_;                // of the other ranks of this node, where they can be watched
  std::vector<int> neighbours_;  // this node's ranks that share memory, this one included
  FifoShape shape_;
  int cores_ = 1;
  bool crowded_ = true;
  bool copies_memory_ = true;  // the kernel, between all ranks of this node that share memory
  double copied_page_us_ = 0;
  CopyProbe probe_;
  NodeDescriptors descriptors_;
  std::shared_ptr<Mapping> memory_;
};

}  // namespace

Communicator connect(Bootstrap bootstrap, Store& place, const Options& options, Lookout lookout, Obstacles obstacles) {
  constexpr std::size_t kSockets = 4;  // to listen for peers and for the node
  reserve_descriptors(kSockets, fmt::format("rank {} of {}", bootstrap.rank, bootstrap.world_size));
  Connecting meeting(std::move(bootstrap), place, options, std::move(lookout), std::move(obstacles));
  try {
    return meeting.run();
  } catch (const Error& error) {
    throw Error(meeting.cause_of(error));
  } catch (const std::exception& error) {
    meeting.cause_of(Error(ErrorCode::system, reason_of(error)));
    throw;
  }
}

}  // namespace rondo::comm

namespace rondo {

Communicator make_communicator(Bootstrap bootstrap, const Options& options) {
  if (bootstrap.rank < 0 || bootstrap.rank >= bootstrap.world_size) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} is not a rank of a world of {}", bootstrap.rank, bootstrap.world_size));
  }
  if (bootstrap.job_ranks.empty()) {
    bootstrap.job_ranks.resize(static_cast<std::size_t>(bootstrap.world_size));
    std::iota(bootstrap.job_ranks.begin(), bootstrap.job_ranks.end(), 0);
  }
  const std::shared_ptr<Store> place = bootstrap.store;
  Lookout lookout = comm::look_for_lost(bootstrap.recruiter);
  return comm::connect(std::move(bootstrap), *place, checked(options), std::move(lookout));
}

}  // namespace rondo
