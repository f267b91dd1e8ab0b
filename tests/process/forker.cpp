// SPDX-License-Identifier: Apache-2.0
// A rank that forks: forker WHO CHILD [spawn WORLD_SIZE | URL RANK WORLD_SIZE]. WHO forks a child that ends as CHILD
// says, or stays; then all ranks go on together. What ends with an exception prints "error at MICROSECONDS SENTENCE".
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

using rondo::Communicator;
using rondo::ReduceOp;

// Destroyed by exit(), in the child too.
std::optional<Communicator> kept;

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(1, whole.data(), whole.size()) < 0) ::_exit(9);
}

std::string now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

void check_sum(Communicator& comm, std::size_t count) {
  const auto sum = static_cast<float>(comm.world_size() * (comm.world_size() + 1) / 2);
  std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(data, ReduceOp::sum);
  for (const float value : data)
    if (value != sum)
      throw std::runtime_error(fmt::format("rank {} has {} where {} is right", comm.rank(), value, sum));
}

struct Inherited {
  rondo::Window<float> window;
  rondo::Work work;
  std::vector<float> data;
};

// Every call there is; each has to be refused with one sentence that says why.
void use_all(Communicator& comm, Inherited& inherited) {
  std::vector<float> one(1), all(static_cast<std::size_t>(comm.world_size()));
  rondo::Async async = comm.async();
  rondo::Group group = comm.group();
  group.send(std::span<const float>(one), 0);
  const int peer = comm.rank() == 0 ? 1 : 0;
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"all_reduce", [&] { comm.all_reduce(one, ReduceOp::sum); }},
      {"long all_reduce", [&] { comm.all_reduce(inherited.data, ReduceOp::sum); }},
      {"all_reduce of a window", [&] { comm.all_reduce(inherited.window.span(), ReduceOp::sum); }},
      {"broadcast", [&] { comm.broadcast(std::span(one), 0); }},
      {"all_gather", [&] { comm.all_gather(std::span<const float>(one), std::span(all)); }},
      {"send", [&] { comm.send(std::span<const float>(one), peer); }},
      {"recv", [&] { comm.recv(std::span(one), peer); }},
      {"barrier", [&] { comm.barrier(); }},
      {"all_gather_bytes", [&] { comm.all_gather_bytes({}); }},
      {"async", [&] { async.all_reduce(one, ReduceOp::sum); }},
      {"group", [&] { group.end(); }},
      {"wait", [&] { inherited.work.wait(); }},
      {"wait_for", [&] { inherited.work.wait_for(std::chrono::milliseconds(1)); }},
      {"done", [&] { static_cast<void>(inherited.work.done()); }},
      {"allocate", [&] { comm.allocate<float>(1); }},
      {"register_memory", [&] { comm.register_memory(one.data(), sizeof(float)); }},
      {"split", [&] { comm.split(0, 0); }},
      {"shrink", [&] { comm.shrink(); }},
      {"set_timeout", [&] { comm.set_timeout(std::chrono::seconds(1)); }},
      {"synchronize", [&] { comm.synchronize(); }},
      {"check", [&] { comm.check(); }},
      {"abort", [&] { comm.abort(); }}};
  for (const auto& [name, call] : calls) {
    try {
      call();
      say(fmt::format("{} was not refused", name));
    } catch (const rondo::Error& error) {
      const std::string sentence = error.what();
      const bool good = error.error_code() == rondo::ErrorCode::invalid_argument &&
                        sentence.find("forked child") != std::string::npos;
      if (!good) say(fmt::format("{} was refused by: {}", name, sentence));
    }
  }
  if (comm.world_size() < 2 || comm.flight_record().empty()) say("it does not know what it is");
  say(fmt::format("{} calls were tried", calls.size()));
}

// Ranks as threads are a world of the child's own.
void make_own() {
  Communicator own = std::move(Communicator::local(1).front());
  check_sum(own, 1000);
  Communicator alone = Communicator::create({.rank = 0, .world_size = 1, .url = "tcp://127.0.0.1:1"});
  check_sum(alone, 1000);
}

// True: the child goes on, to leave main() or the rank's function.
bool is_child(const std::string& mode, Communicator& comm, Inherited& inherited) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (mode == "return") return true;
    if (mode == "throw") throw std::runtime_error("a child's own trouble");
    if (mode == "exit") std::exit(0);
    if (mode == "exec") ::execl("/bin/true", "true", nullptr);
    if (mode == "drop") {
      comm = Communicator();
      inherited = {};
    }
    if (mode == "use") use_all(comm, inherited);
    if (mode == "own") make_own();
    if (mode == "stay") {
      say(fmt::format("child {} of {}", ::getpid(), ::getppid()));
      for (;;) ::pause();
    }
    ::_exit(0);
  }
  if (mode == "stay") return false;
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) throw std::runtime_error("cannot wait for the child");
  say(fmt::format("the child ended with {}", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)));
  return false;
}

void go_on(Communicator& comm, Inherited& inherited) {
  inherited.work.wait();
  for (std::size_t count : {1, 100, 10'000, 300'000}) {
    check_sum(comm, count);
    comm.async().all_reduce(inherited.data, ReduceOp::sum).wait();
  }
  for (float& value : inherited.window.span()) value = 1;
  comm.all_reduce(inherited.window.span(), ReduceOp::sum);
  if (inherited.window.span().back() != static_cast<float>(comm.world_size())) throw std::runtime_error("wrong sum");
  auto half = comm.split(comm.rank() % 2, 0);
  check_sum(half, 100);
  comm.barrier();
  say(fmt::format("rank {} goes on", comm.rank()));
}

void live(Communicator& comm, int who, const std::string& mode) {
  check_sum(comm, 10);
  Inherited inherited{.window = comm.allocate<float>(100'000), .work = {}, .data = std::vector<float>(100'000)};
  inherited.work = comm.async().all_reduce(inherited.data, ReduceOp::sum);
  if (mode != "use") inherited.work.wait();  // or a call is in the midst of it
  if (comm.rank() == who && is_child(mode, comm, inherited)) return;
  if (mode != "stay") return go_on(comm, inherited);
  say(fmt::format("joined {}", ::getpid()));
  for (;;) check_sum(comm, 1000);
}

int run_rank(const std::string& mode, int who) {
  const int parent = ::getpid();
  try {
    live(*kept, who, mode);
    return 0;
  } catch (const rondo::Error& error) {
    say(fmt::format("error at {} {}", now_us(), error.what()));
    if (mode != "stay" || ::getpid() != parent) return 1;
  } catch (const std::exception& error) {
    say(fmt::format("error at {} {}", now_us(), error.what()));
    return 1;
  }
  try {
    kept = kept->shrink();
    check_sum(*kept, 100);
    say(fmt::format("shrunk to {} at {}", kept->world_size(), now_us()));
  } catch (const std::exception& error) {
    say(fmt::format("no shrinking at {} {}", now_us(), error.what()));
  }
  return 1;
}

}  // namespace

int main(int count, char** argv) {
  const int who = std::atoi(argv[1]);
  const std::string mode = argv[2], how = count > 3 ? argv[3] : "env://";
  if (how == "spawn") {
    return rondo::spawn(std::atoi(argv[4]), [&](Communicator& comm) { live(comm, who, mode); });
  }
  rondo::Options options;
  options.timeout = std::chrono::seconds(20);
  options.join_timeout = std::chrono::seconds(20);
  try {
    rondo::Rendezvous place{.url = how};
    if (count > 4) place.rank = std::atoi(argv[4]), place.world_size = std::atoi(argv[5]);
    kept = Communicator::create(place, options);
  } catch (const std::exception& error) {
    say(fmt::format("error at {} {}", now_us(), error.what()));
    return 1;
  }
  return run_rank(mode, who);
}
