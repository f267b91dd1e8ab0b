// SPDX-License-Identifier: Apache-2.0
#include "comm/call/communicator_impl.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <limits>
#include <numeric>

#include "comm/base/duration.hpp"
#include "comm/base/log.hpp"
#include "comm/call/algorithms.hpp"
#include "comm/device/setup/attach.hpp"
#include "kernels/thread.hpp"

namespace rondo::detail {
namespace {

using comm::Buffers;
using comm::PreparedCall;
using comm::Signature;
using comm::Way;

constexpr std::chrono::milliseconds kGrace{5000};  // past the deadline of the kernels, which say more

[[noreturn]] void reject(const Call& call, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", name_of(call.collective), why));
}

// Elements of one buffer, or throws when their bytes cannot be counted.
std::size_t elements(const Call& call, Extent extent, std::span<const std::size_t> counts, int world_size) {
  std::size_t total = 0, bytes = 0;
  bool overflow = false;
  switch (extent) {
    case Extent::none:
      break;
    case Extent::one:
      total = call.count;
      break;
    case Extent::world:
      overflow = __builtin_mul_overflow(call.count, static_cast<std::size_t>(world_size), &total);
      break;
    case Extent::counts:
      for (const std::size_t count : counts) overflow = __builtin_add_overflow(total, count, &total) || overflow;
      break;
  }
  overflow = __builtin_mul_overflow(total, size_of(call.dtype), &bytes) || overflow;
  if (overflow || bytes > std::numeric_limits<std::ptrdiff_t>::max()) reject(call, "the count is beyond all memory");
  return total;
}

}  // namespace

CommunicatorImpl::CommunicatorImpl(std::unique_ptr<comm::Team> team, Bootstrap bootstrap, Options options,
                                   comm::Config config)
    : team_(std::move(team)),
      bootstrap_(std::move(bootstrap)),
      options_(std::move(options)),
      config_(std::move(config)),
      named_(config_.algorithm.empty() ? "" : fmt::format("RONDO_ALGORITHM={}", config_.algorithm)),
      primitives_(*team_, config_),
      board_(*team_, config_, *windows_),
      two_level_(*team_, board_, primitives_, config_),
      short_calls_(board_.chooser(), board_.board(), board_.flow(), board_.ring_stores()),
      choices_(bootstrap_),
      monitored_barrier_(*team_),
      messages_(*team_, config_, [this]() noexcept { return failure(); }) {
  records_->enroll(*this);
}

// Calls that are nearly done may end; a call that others do not join would hold us until its deadline.
CommunicatorImpl::~CommunicatorImpl() {
  if (std::uncaught_exceptions() > 0 && !recorded_.exchange(true)) records_->write(*this);  // the rank may be failing
  constexpr std::chrono::milliseconds kPatience{1000};
  const auto until = std::chrono::steady_clock::now() + kPatience;
  bool done = engine_.drain_for(kPatience);
  if (messages_.in_use() && done) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    done = messages_.drain_for(left);
  }
  if (!done) {
    team_->fail(ErrorCode::aborted, rank(),
                fmt::format("rank {} destroyed its communicator in the middle of an asynchronous call", rank()));
  }
  records_->leave(*this);
}

void CommunicatorImpl::refuse_child() const {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("this process ({}) is a forked child of rank {} ({}), whose communicator it cannot use: leave "
                  "the calls to the parent, or make a communicator of its own here",
                  ::getpid(), rank(), team_->placement(rank()).pid));
}

void CommunicatorImpl::validate(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  if (call.timeout.count() != 0) checked_duration("Call::timeout", call.timeout);
  if (static_cast<int>(call.dtype) >= kDataTypeCount) {
    reject(call,
           fmt::format("dtype {} is none of ours: they are 0 to {}", static_cast<int>(call.dtype), kDataTypeCount - 1));
  }
  if (row.reduces && static_cast<int>(call.op.kind()) >= kReduceOpCount) {
    reject(call, fmt::format("reduce_op {} is none of ours: they are 0 to {}", static_cast<int>(call.op.kind()),
                             kReduceOpCount - 1));
  }
  if (row.reduces && !is_supported(call.dtype, call.op)) {
    reject(call, fmt::format("{} of {} makes no sense", name_of(call.op.kind()), name_of(call.dtype)));
  }
  const bool at_peer = row.is_message();
  const bool from_any = call.collective == Collective::recv && call.root == kAnySource;
  if (at_peer && call.tag < 0) {
    reject(call, fmt::format("tag {} is negative: tags are 0 to {}", call.tag, std::numeric_limits<int>::max()));
  }
  if (at_peer && options_.device.kind != Device::Kind::cpu && (from_any || call.tag != 0)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: on a device messages have {}", name_of(call.collective),
                            from_any ? "one source, and none comes from kAnySource" : "no tags but 0"));
  }
  if ((row.rooted || at_peer) && !from_any && (call.root < 0 || call.root >= world_size())) {
    reject(call, fmt::format("{} {} is not a rank of 0 to {}", at_peer ? "peer" : "root", call.root, world_size() - 1));
  }
  const auto world = static_cast<std::size_t>(world_size());
  if (row.send == Extent::counts && call.send_counts.size() != world) {
    reject(call, fmt::format("{} send counts for {} ranks", call.send_counts.size(), world));
  }
  if (row.recv == Extent::counts && call.recv_counts.size() != world) {
    reject(call, fmt::format("{} receive counts for {} ranks", call.recv_counts.size(), world));
  }
  const bool sends = !row.send_at_root || rank() == call.root, receives = !row.recv_at_root || rank() == call.root;
  if (call.send == nullptr && sends && elements(call, row.send, call.send_counts, world_size()) != 0)
    reject(call, "the send buffer is null");
  if (call.recv == nullptr && receives && elements(call, row.recv, call.recv_counts, world_size()) != 0)
    reject(call, "the receive buffer is null");
  const auto self = static_cast<std::size_t>(rank());
  if (row.has_own_counts() && call.send_counts[self] != call.recv_counts[self]) {
    reject(call, fmt::format("rank {} sends itself {} elements and receives {} from itself", self,
                             call.send_counts[self], call.recv_counts[self]));
  }
  const Buffers buffers = buffers_of(call);
  if (buffers.admit(call)) return;
  if (row.has_block_per_pair()) reject(call, "its buffers overlap, and it cannot work in place: give it two");
  const auto in_place = static_cast<std::ptrdiff_t>(buffers.in_place);
  const std::string where = in_place == 0 ? std::string("where its send buffer begins")
                                          : fmt::format("{} bytes {} the start of its send buffer", std::abs(in_place),
                                                        in_place < 0 ? "before" : "after");
  reject(call, fmt::format("its buffers overlap: to work in place, rank {} must receive {}", self, where));
}

// What validate() admits, for most messages, in little time.
bool CommunicatorImpl::is_plain_message(const Call& call) const {
  constexpr std::size_t kFarFromOverflow = std::size_t{1} << 40;
  const void* const data = call.collective == Collective::send ? call.send : call.recv;
  return options_.device.kind == Device::Kind::cpu && data != nullptr && call.count < kFarFromOverflow &&
         static_cast<int>(call.dtype) < kDataTypeCount && call.root >= 0 && call.root < world_size() && call.tag >= 0 &&
         call.timeout.count() == 0;
}

Buffers CommunicatorImpl::buffers_of(const Call& call) const {
  const CollectiveRow& row = row_of(call.collective);
  const std::size_t element = size_of(call.dtype),
                    send = elements(call, row.send, call.send_counts, world_size()) * element,
                    recv = elements(call, row.recv, call.recv_counts, world_size()) * element;
  const bool is_root = rank() == call.root;
  if ((row.send_at_root && !is_root) || (row.recv_at_root && !is_root) || send == 0 || recv == 0) return {};
  const auto in_place = static_cast<std::uintptr_t>(comm::in_place_distance(call, rank())) * element;
  return {.send_bytes = send, .recv_bytes = recv, .in_place = row.has_block_per_pair() ? send : in_place};
}

void CommunicatorImpl::fail(const Error& error) {
  team_->fail(error);
  throw_failure();
}

std::exception_ptr CommunicatorImpl::failure() {
  try {
    throw_failure();
  } catch (...) {
    return std::current_exception();
  }
}

void CommunicatorImpl::throw_failure() {
  const Error error = team_->failure().error();  // the first one, which may be another rank's
  team_->pass_on_failure();
  if (!recorded_.exchange(true)) records_->write(*this);
  throw error;
}

// What goes wrong once ranks have started to talk is everybody's failure.
template <class F>
void CommunicatorImpl::guarded(F&& body) {
  if (team_->failure().raised()) throw_failure();  // between two calls of this rank
  try {
    body();
  } catch (const Error& error) {
    if (error.error_code() == ErrorCode::peer_lost && error.culprit() >= 0) team_->await_verdict(error.culprit());
    fail(error);
  } catch (const std::exception& error) {
    fail({ErrorCode::system, fmt::format("rank {}: {}", rank(), reason_of(error)), rank()});
  }
}

void CommunicatorImpl::execute(const Call& call) {
  const PreparedCall& prepared = prepare(call);
  guarded([&]() __attribute__((always_inline)) { run_collective(prepared, call); });
}

// Between two calls of this rank.
void CommunicatorImpl::check_alive() {
  if (team_->failure().raised()) throw_failure();
}

const PreparedCall& CommunicatorImpl::prepare(const Call& call, PreparedCall& place) const {
  validate(call);
  place = {.shape = call, .signature = comm::signature_of(call), .prepared = true};
  place.hash = comm::hash_of(place.signature);
  place.sends = call.send != nullptr;
  place.receives = call.recv != nullptr;
  place.buffers = buffers_of(call);
  place.counts.assign(call.send_counts.begin(), call.send_counts.end());
  place.counts.insert(place.counts.end(), call.recv_counts.begin(), call.recv_counts.end());
  choose_way(call, place);
  return place;
}

void CommunicatorImpl::choose_way(const Call& call, PreparedCall& prepared) const {
  if (!board_.takes(call) || !comm::prefers_board(config_.algorithm)) return choose_way_between(call, prepared);
  const comm::Start start = board_.chooser().start(call, named_);
  prepared.chosen = comm::kBoard;
  prepared.way = start.way;
  prepared.asks = start.asks;
  prepared.why = start.why;
  if (start.way == Way::counted) prepared.counted = comm::BoardCollectives::plan_counted(call);
  if (start.way == Way::short_call) prepared.plan = short_calls_.plan(call);
}

// Of ranks that do not all share memory, or shall not use it.
void CommunicatorImpl::choose_way_between(const Call& call, PreparedCall& prepared) const {
  const std::string_view flat = two_level_.why_not(call, options_.determinism, config_.algorithm);
  if (flat.empty()) {
    prepared.way = Way::two_level;
    prepared.chosen = comm::kTwoLevel;
    prepared.why = two_level_.why(call, named_);
    return;
  }
  prepared.way = Way::links;
  prepared.chosen = comm::choose_algorithm(call, *team_, options_.determinism, config_);
  prepared.why = {.why = prepared.chosen.why, .not_board = named_};
  if (!named_.empty()) return;
  prepared.why.not_board = board_.spans_team() ? "too many ranks" : "not all ranks share memory";
  if (!board_.spans_team()) prepared.why.not_two_level = flat;
}

void CommunicatorImpl::explain(const PreparedCall& prepared, const Call& call, bool direct) {
  const bool is_short = prepared.way == Way::short_call;
  const std::string_view way = direct     ? board_.direct_name()
                               : is_short ? comm::ShortCalls::kName
                                          : prepared.chosen.name;
  const std::size_t bytes = comm::larger_count(call, world_size()) * size_of(call.dtype);
  choices_.explain(call.collective, bytes, way, [&] {
    comm::Reason why = direct ? board_.why_direct() : prepared.why;
    if (!direct && prepared.way == Way::board && why.not_straight.empty()) why.not_straight = board_.why_not_direct();
    return comm::in_words(why);
  });
}

// A rank's history says what it is in before a peer can see that it has come; the flight record is for later, and is
// written while the message crosses.
void CommunicatorImpl::run_short(const PreparedCall& prepared, const Call& call) {
  comm::Board& board = board_.board();
  const Signature& signature = board.note(prepared.signature, ++sequence_, prepared.hash);
  comm::write_history(board.own_line().calls, signature);
  short_calls_.publish(prepared.plan, call, timeout_of(call));
  recorder_.begin(signature, prepared.chosen.name);
  const std::uint64_t ended = short_calls_.collect(prepared.plan, call);
  if (choices_.speaks()) explain(prepared, call, false);
  recorder_.end(ended);
}

void CommunicatorImpl::run_long(const PreparedCall& prepared, const Call& call, bool tries_direct) {
  comm::Board& board = board_.board();
  const std::uint64_t past = board.key();
  const Signature& signature = board.note(prepared.signature, ++sequence_, prepared.hash);
  comm::write_history(team_->own_line().calls, signature);
  recorder_.begin(signature, tries_direct ? comm::ZeroCopy::kName : prepared.chosen.name);
  bool direct = tries_direct && board_.run_direct(call, timeout_of(call));
  if (tries_direct) recorder_.amend(direct ? board_.direct_name() : prepared.chosen.name);
  if (!direct) direct = run_way(prepared, call, past);
  if (tries_direct && !direct) board_.went_another_way();
  if (direct && !tries_direct) recorder_.amend(board_.direct_name());
  if (choices_.speaks()) explain(prepared, call, direct);
  recorder_.end();
}

void CommunicatorImpl::run_collective(const PreparedCall& prepared, const Call& call) {
  const bool tries_direct = prepared.asks && board_.may_go_direct(call);
  const bool is_short = prepared.way == Way::short_call && !tries_direct;
  if (is_short) return run_short(prepared, call);
  run_long(prepared, call, tries_direct);
}

bool CommunicatorImpl::run_way(const PreparedCall& prepared, const Call& call, std::uint64_t past) {
  const auto signature = [&] {
    Signature over_links = board_.board().signature();
    over_links.past = past;
    return over_links;
  };
  switch (prepared.way) {
    case Way::short_call:
      short_calls_.publish(prepared.plan, call, timeout_of(call));
      short_calls_.collect(prepared.plan, call);
      break;
    case Way::board:
      board_.begin(timeout_of(call));
      board_.run(call);
      break;
    case Way::counted:
      return board_.run_counted(prepared.counted, call, timeout_of(call));
    case Way::two_level:
      two_level_.run(call, signature(), timeout_of(call));
      break;
    case Way::links:
      comm::run_algorithm(prepared.chosen, call, signature(), primitives_, *team_, timeout_of(call));
      break;
  }
  return false;
}

void CommunicatorImpl::run_messages(std::span<const Call> calls) {
  check_alive();
  messages_.run(calls, timeout_of(calls));
}

void CommunicatorImpl::attach_device(const cuda::Api* api) {
  if (options_.device.kind == Device::Kind::cpu) return;
  device_ = comm::device::attach(*this, recorder_, choices_, api);
  options_.device = device_->device();
}

void CommunicatorImpl::submit(const Call& call) {
  if (device_) return enqueue(std::span(&call, 1));
  submit_on_host(call);
}

void CommunicatorImpl::submit_on_host(const Call& call) {
  check_process();
  if (call.collective == Collective::send || call.collective == Collective::recv) [[unlikely]] {
    if (!is_plain_message(call)) validate(call);
    check_alive();
    return messages_.run(std::span(&call, 1), timeout_of(call));
  }
  engine_.in_turn([&] { execute(call); });
}

void CommunicatorImpl::enqueue(std::span<const Call> calls) {
  check_process();
  for (const Call& call : calls) validate(call);
  const std::lock_guard lock(device_calls_);
  device_->validate(calls);
  guarded([&] { device_->run(calls, timeout_of(calls)); });
  tell_sources(calls);
}

Work CommunicatorImpl::start(const Call& call) {
  check_process();
  validate(call);
  if (device_) return start_on_device(std::span(&call, 1));
  if (row_of(call.collective).is_message()) return Work(start_messages(std::span(&call, 1), true));
  return Work(engine_.start([this, owned = comm::OwnedCall(call)] { execute(owned.call()); }));
}

Work CommunicatorImpl::start_on_device(std::span<const Call> calls) {
  const std::lock_guard lock(device_calls_);
  device_->validate(calls);
  Work work;
  guarded([&] { work = Work(device_->start(calls, timeout_of(calls))); });
  tell_sources(calls);
  return work;
}

std::chrono::milliseconds CommunicatorImpl::timeout_of(std::span<const Call> calls) const {
  auto shortest = kForEver;
  for (const Call& call : calls) shortest = std::min(shortest, timeout_of(call));
  return shortest;
}

// On a device every receive names its source.
void CommunicatorImpl::tell_sources(std::span<const Call> calls) {
  for (const Call& call : calls) {
    if (call.collective == Collective::recv && call.source != nullptr) *call.source = call.root;
  }
}

std::shared_ptr<comm::Batch> CommunicatorImpl::start_messages(std::span<const Call> calls, bool tells_source) {
  check_alive();
  return messages_.start(calls, timeout_of(calls), tells_source);
}

std::vector<std::vector<std::byte>> CommunicatorImpl::all_gather_bytes(std::span<const std::byte> value,
                                                                       std::chrono::milliseconds timeout) {
  if (value.data() == nullptr && !value.empty()) {  // before the others go on without it
    throw Error(ErrorCode::invalid_argument,
                fmt::format("all_gather_bytes: the value of {} bytes is null", value.size()));
  }
  const std::uint64_t mine = value.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world_size()));
  submit_on_host({.collective = Collective::all_gather,
                  .send = &mine,
                  .recv = sizes.data(),
                  .count = 1,
                  .dtype = DataType::u64,
                  .timeout = timeout});
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::vector<std::byte> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  submit_on_host({.collective = Collective::all_gather_v,
                  .send = value.data(),
                  .recv = all.data(),
                  .count = value.size(),
                  .dtype = DataType::u8,
                  .recv_counts = counts,
                  .timeout = timeout});
  std::vector<std::vector<std::byte>> parts;
  auto from = all.begin();
  for (const std::size_t count : counts) {
    parts.emplace_back(from, from + static_cast<std::ptrdiff_t>(count));
    from += static_cast<std::ptrdiff_t>(count);
  }
  return parts;
}

void CommunicatorImpl::set_timeout(std::chrono::milliseconds timeout) {
  check_process();
  timeout = checked_duration("set_timeout: timeout", timeout);
  engine_.in_turn([&] { options_.timeout = timeout; });
}

// What goes wrong here alone stays here.
void CommunicatorImpl::monitored_barrier(std::chrono::milliseconds timeout, bool waits_for_all) {
  check_process();
  if (timeout.count() != 0) timeout = checked_duration("monitored_barrier: timeout", timeout);
  engine_.in_turn([&] {
    if (team_->failure().raised()) throw_failure();
    monitored_barrier_.run(timeout.count() == 0 ? options_.timeout : timeout, waits_for_all);
  });
}

void CommunicatorImpl::abort() {
  check_process();
  team_->abort();
  if (device_) device_->abort();
}

void CommunicatorImpl::synchronize(Stream stream) {
  check_process();
  if (device_) return device_->synchronize(stream, options_.timeout + kGrace);
  team_->failure().check();
}

void CommunicatorImpl::check() {
  check_process();
  const std::lock_guard lock(checking_);
  if (device_) device_->inspect();
  if (team_->failure().raised()) throw_failure();
  if (const comm::Difference difference = team_->find_disagreement(); !difference.empty())
    fail(team_->judge(difference));
  if (const auto error = engine_.error()) std::rethrow_exception(error);
}

}  // namespace rondo::detail
