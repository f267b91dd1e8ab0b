// SPDX-License-Identifier: Apache-2.0
// The communicator: a group of ranks and the collectives among them.
#pragma once
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/store.hpp>
#include <rondo/verbs.hpp>

namespace rondo {

// Where a rank's buffers lie and its reductions run: the CPU, a GPU, or a simulated device on the CPU.
struct RONDO_API Device {
  // sim: the CUDA kernels, run by the CPU.
  enum class Kind : std::uint8_t { cpu, cuda, sim };
  Kind kind = Kind::cpu;              // the same on every rank of a communicator
  int index = -1;                     // -1: local_rank modulo the visible devices
  static Device cpu() { return {}; }  // host memory
  // The CUDA device of that index, as this process sees devices. One that is not there is Error(unsupported) when a
  // communicator is made, never another device.
  static Device cuda(int index = -1) { return {Kind::cuda, index}; }
  // A simulated device. Nothing that it says about speed is meant.
  static Device sim(int index = -1) { return {Kind::sim, index}; }
};

// What a result may depend on.
enum class Determinism : std::uint8_t {
  deterministic,  // all ranks get the same bits; the same program, placement and tuning gives them again
  reproducible,   // the bits depend on values and ranks alone, not on algorithm, size, chunking or transport
  fast,           // anything goes
};

// Times are of at least a millisecond; milliseconds::max() waits for ever. Other values are refused by a sentence that
// names the field.
struct Options {
  Device device{};                                       // where this rank's buffers lie
  std::chrono::milliseconds timeout{600'000};            // of one collective
  std::chrono::milliseconds join_timeout{300'000};       // of meeting the other ranks
  Determinism determinism = Determinism::deterministic;  // rank 0's counts for all
  std::string node{};  // ranks with equal, non-empty names share memory; empty: found out
  std::string interface {
  };  // network interface or address for peer connections; empty: the one that reaches the server
};

// How to meet: a url and, unless it is "env://", who we are; or a Store of the caller's, alive until create returns.
struct Rendezvous {
  int rank = -1;               // -1: assigned by the server
  int world_size = -1;         // ranks in all; -1: as the server or the variables say
  std::string url = "env://";  // "env://", "tcp://host:port", "file:///path"
  Store* store = nullptr;      // instead of a url
};

class Communicator;

namespace detail {
class CommunicatorImpl;
struct WorkState;
struct WindowState;
CommunicatorImpl& impl_of(Communicator& communicator);
}  // namespace detail

// An asynchronous call. Dropping a Work does not cancel it; the buffers must live until it is done.
class RONDO_API Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<detail::WorkState> state) : state_(std::move(state)) {}
  void wait();  // throws the call's error
  // False: still running. 0 looks once, milliseconds::max() waits for ever.
  bool wait_for(std::chrono::milliseconds duration);
  bool done() const;
  std::exception_ptr error() const;  // null while running and on success

  // Of a receive that is done: the rank that it was from. Of any other call, of a group (whose receives write it, see
  // Call::source), and before it is done: -1.
  int source() const;

  // When the engine thread ran it, or a message was in hand; equal before it is done, and on a device, where nobody
  // knows.
  struct Times {
    std::chrono::steady_clock::time_point started{};   // its turn had come
    std::chrono::steady_clock::time_point finished{};  // its buffers are the caller's again
  };
  Times times() const;  // see Times

  // Calls `callback` once, with the call's error or null, when the call is done: at once if it is done already, else in
  // the thread that has ended it. On the CPU that is the engine thread, which runs the communicator's next call after
  // the callback, or for messages a thread that moves them, a caller's own that is in a message among these: it should
  // be short, and may start calls of the communicator but neither wait for them nor destroy the communicator. On a
  // device it is a thread that looks every 1 to 10 ms. What a callback throws goes into the log. A Work of nothing is
  // done.
  void on_done(std::function<void(std::exception_ptr)> callback);

 private:
  std::shared_ptr<detail::WorkState> state_;
};

// The same verbs, started at once and run meanwhile: collectives in the order of the calls on an engine thread, which a
// communicator has while it has some to run; messages by themselves.
class RONDO_API Async : public Verbs<Async, Work, true> {
 public:
  Async(detail::CommunicatorImpl& impl, std::chrono::milliseconds timeout) : impl_(&impl), timeout_(timeout) {}
  int rank() const;               // the communicator's
  int world_size() const;         // the communicator's
  Work submit(const Call& call);  // what the verbs call

 private:
  detail::CommunicatorImpl* impl_;
  std::chrono::milliseconds timeout_;
};

// The same verbs, each with a deadline of its own instead of the communicator's.
class RONDO_API Within : public Verbs<Within, void> {
 public:
  Within(detail::CommunicatorImpl& impl, std::chrono::milliseconds timeout) : impl_(&impl), timeout_(timeout) {}
  int rank() const;               // the communicator's
  int world_size() const;         // the communicator's
  void submit(const Call& call);  // what the verbs call

 private:
  detail::CommunicatorImpl* impl_;
  std::chrono::milliseconds timeout_;
};

// Verbs recorded until end() or start(), which start them together: first all messages, then the collectives in order.
class RONDO_API Group : public Verbs<Group, void, true> {
 public:
  Group(detail::CommunicatorImpl& impl, std::chrono::milliseconds timeout);
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();                       // a group that was not ended has done nothing
  int rank() const;               // the communicator's
  int world_size() const;         // the communicator's
  void submit(const Call& call);  // what the verbs call; throws invalid_argument for a call that is wrong by itself
  // Runs what was recorded, and returns when all of it is done. Throws its first error.
  void end();
  // Starts what was recorded, its collectives in order with the other calls of async(), and returns at once. The
  // buffers must live until the Work is done, whose error is the first one.
  Work start();

 private:
  detail::CommunicatorImpl* impl_;
  std::chrono::milliseconds timeout_;
  struct Recorded;
  Recorded& recorded();  // Error(invalid_argument) where it was moved elsewhere
  std::unique_ptr<Recorded> recorded_;
};

// Memory of the communicator's making that its collectives use without copying it first. Symmetric: every rank
// allocates the same count. Must go before the communicator.
// On the CPU the ranks of a node share it: they read and write each other's windows during a collective of which those
// are the buffers, from its start to its end on the last rank, and at no other time. Its memory is given back once
// every rank of the node has let go. Between nodes, and where memory cannot be shared, it is memory like any other.
template <class T>
class Window {
 public:
  Window() = default;
  Window(std::shared_ptr<detail::WindowState> state, T* data, std::size_t count)
      : state_(std::move(state)), data_(data), count_(count) {}
  std::span<T> span() const { return {data_, count_}; }  // all elements; valid while this object lives
  T* data() const { return data_; }                      // null where nothing was allocated
  std::size_t size() const { return count_; }            // elements

 private:
  std::shared_ptr<detail::WindowState> state_;
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

// The caller's device memory, used by collectives without copying it first, for as long as this object lives. The
// memory must live until the communicator's next allocate() or register_memory(), or its end.
class RONDO_API Registration {
 public:
  Registration() = default;
  explicit Registration(std::shared_ptr<detail::WindowState> state) : state_(std::move(state)) {}
  Registration(Registration&&) noexcept = default;
  Registration& operator=(Registration&&) noexcept = default;

 private:
  std::shared_ptr<detail::WindowState> state_;
};

// Any threads may call a communicator, also at the same time: their calls run one at a time in the order in which they
// come, asynchronous ones among them, and a blocking call waits for its turn. That this order is the same on every rank
// is the caller's duty; another one is found as a mismatch, where the calls differ. Two things are for one thread
// alone, which nobody else calls meanwhile: shrink(), and moving or destroying a communicator. abort() waits for no
// turn. A collective that fails makes the communicator failed for good: that call and every later one throw the same
// error, on every rank. Two kinds of failure are of that call alone: an invalid_argument found before anything was
// sent, and the timeout of monitored_barrier(). On a device every
// verb of Verbs enqueues on its stream and returns; buffers are device memory (or pinned host memory). What goes wrong
// there is thrown by synchronize(), check(), Work::wait() or the next call; the stream stays usable. Calls may be
// captured into CUDA graphs and replayed, by every rank the same number of times and in the same order among the
// communicator's other calls; a communicator that a live graph holds cannot give its device memory back. Stream null is
// the device's default stream. Where ranks are threads that share a device, kernels on that stream would wait for each
// other: there null means a stream of the communicator's own, which waits for what is on the default stream, but which
// the default stream does not wait for; synchronize() does.
//
// A child of fork() cannot use what it inherits: there every call of a communicator, and of what came from one, throws
// invalid_argument, and their destructors do nothing; rank() and its like answer. Peers notice nothing of a child's
// end, and of its parent's at once, whether children live or not; but what is forked while another thread makes a
// communicator may keep ranks of other nodes from seeing the end of its parent. Windows' memory is the parent's too.
class RONDO_API Communicator : public Verbs<Communicator, void> {
 public:
  Communicator();  // empty: not a member of anything
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  // Bounded; peers that still wait for this rank get aborted. What was left over is one line of warning in the log: a
  // collective that others were not in, a message that nobody received.
  ~Communicator();
  explicit Communicator(std::unique_ptr<detail::CommunicatorImpl> impl);

  // Variables of rondorun (in place of a lost rank, RONDO_JOINS_AS: as join()) or torchrun, or RANK, WORLD_SIZE,
  // MASTER_ADDR, MASTER_PORT. None at all: a world of one. Others, or half of them: an error that names the variable.
  static Communicator from_environment(Options options = {});
  // Meets the other ranks as `rendezvous` says. timeout: not all came within options.join_timeout; the message names
  // those that are missing. mismatch: ranks differ in what must be equal. invalid_argument: an option or url is wrong.
  static Communicator create(const Rendezvous& rendezvous, Options options = {});
  // The other side of grow(): waits at the place where a job's ranks have met, until one of its communicators takes
  // this process in, and returns the larger one. `place`: "env://" reads RONDO_RENDEZVOUS and RONDO_JOB, or
  // MASTER_ADDR and MASTER_PORT; rank and world_size are told to it, so they stay -1. It may come before the job does.
  // Where ranks that take it in are lost meanwhile, it waits on. timeout: nobody has within options.join_timeout.
  // mismatch: another secret, job, release or kind of device.
  static Communicator join(const Rendezvous& place = {}, Options options = {});
  // Ranks as threads of this process: give each Communicator to a thread of its own.
  static std::vector<Communicator> local(int world_size, Options options = {});

  explicit operator bool() const { return impl_ != nullptr; }  // false: empty
  int rank() const;                                            // from 0
  int world_size() const;                                      // ranks in all
  int local_rank() const;                                      // among the ranks of this node, from 0
  int local_size() const;                                      // ranks of this node
  int node() const;                                            // index of this node, from 0

  // Collective: a variable-sized value from every rank, in rank order.
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> value);

  // The same verbs, which return at once with a Work. `timeout`: of each of the calls, from its turn on, of a message
  // from now on; 0: the communicator's.
  Async async(std::chrono::milliseconds timeout = {});
  // The same verbs, which are recorded until end() or start(). `timeout`: as for async(), of all of them together.
  Group group(std::chrono::milliseconds timeout = {});
  // The same verbs with that timeout: comm.within(50ms).barrier().
  Within within(std::chrono::milliseconds timeout);
  // Devices: until everything on `stream` so far is done, within options.timeout. Throws the communicator's failure; on
  // the CPU that is all it does.
  void synchronize(Stream stream = {});
  // What the calls' buffers must be reached from, with the index that was chosen.
  Device device() const;

  // Collective. Aligned to 64 bytes, zeroed, present; device memory where the communicator is on a device. A collective
  // on the CPU goes without copies when all of the buffers it reads from peers, or writes to them, lie in windows.
  // invalid_argument: a count beyond all memory, on the rank that asks for it; mismatch: counts differ.
  template <class T>
  Window<T> allocate(std::size_t count) {
    auto state = allocate_bytes(count, sizeof(T));
    T* data = static_cast<T*>(window_data(*state));
    return Window<T>(std::move(state), data, count);
  }

  // Collective: each rank's own device memory, of any size, that its collectives will use much. Ranks whose memory
  // cannot be shared (of a pool, or mapped by the driver's calls) go on copying it; the log says so. Nothing on the
  // CPU.
  Registration register_memory(void* data, std::size_t bytes);

  // Collective. One new communicator per color, ranks ordered by key, then by rank here; color < 0: empty.
  Communicator split(int color, int key);
  // The survivors' new communicator, one generation later, in the order of their ranks here. Called by every survivor
  // of a failed communicator, which stays as it is: shrinking it again makes another one. A rank that dies meanwhile is
  // left out, and nobody waits for it. timeout: a rank that lives has not asked within options.join_timeout.
  Communicator shrink();
  // Collective. A larger communicator, one generation later: this one's ranks keep their numbers, processes that wait
  // in join() come after them in the order in which they came. `world_size`: its new size, for which rank 0 waits until
  // `timeout` (0: options.join_timeout; rank 0's counts); 0: with all who wait now, and empty where nobody does. It is
  // one verb for each side, as of ncclCommGrow, whose ranks give the new size and whose joiners the place; here rank 0
  // knows those by their connection, so they need no rank. This communicator stays as it is, as after split(). What
  // joiners must know, a broadcast from rank 0 tells them. Every rank throws the same, and none has the larger one:
  // timeout: not so many came; those who did wait on. peer_lost: a rank died meanwhile; where culprit() is a joiner,
  // this communicator goes on, else shrink() it: another rank may have the larger one then, which fails in its next
  // call, and shrink() brings that rank back to the survivors of this one. mismatch: sizes or devices differ.
  // unsupported: nobody can join, of ranks as threads, of a Store given to create(), of a world of one without a
  // meeting place.
  Communicator grow(int world_size = 0, std::chrono::milliseconds timeout = {});
  // Of the calls from now on; at first options.timeout, and with the same limits.
  void set_timeout(std::chrono::milliseconds timeout);
  // Collective, for finding out who is stuck. Rank 0 waits for all others, and all learn of it. timeout, which is not
  // final here: a rank did not come in time. The message names the first that was missing, and with `waits_for_all`
  // rank 0's names all of them. Nothing was moved, so the communicator goes on; the rank that comes late to this call
  // is told of the same at once. Time runs for each rank from its own call; 0: the communicator's. A lost peer is final
  // here too.
  void monitored_barrier(std::chrono::milliseconds timeout = {}, bool waits_for_all = false);
  // From any thread: every waiting or later call fails, here and on every rank, within milliseconds.
  void abort();
  // Throws what went wrong asynchronously: an async call, a lost peer, and calls that returned although other ranks
  // called something else (two ranks that took themselves for the root of a broadcast), as far as that is known by now.
  void check();
  // JSON of the last calls on this rank: collective, count, dtype, sequence number, started, finished.
  std::string flight_record() const;

  void submit(const Call& call);  // what the verbs call: one collective as data

 private:
  friend detail::CommunicatorImpl& detail::impl_of(Communicator& communicator);
  std::shared_ptr<detail::WindowState> allocate_bytes(std::size_t count, std::size_t element);
  static void* window_data(const detail::WindowState& state);
  std::unique_ptr<detail::CommunicatorImpl> impl_;
};

}  // namespace rondo
