// SPDX-License-Identifier: Apache-2.0
#include "tests/reliability/launch_life.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "tests/reliability/moments.hpp"
#include "tests/support/spoken.hpp"

namespace rondo::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kHungAfter = 45s, kGoneWithin = 10s;
constexpr std::size_t kRanks = 2;

class LaunchLife {
 public:
  LaunchLife(const Moment& moment, const EmptyHost& empty, const SecretFile& secret) : moment_(moment), empty_(empty) {
    const std::size_t nodes = moment.place->two_nodes ? 2 : 1;
    for (std::size_t node = 0; node < nodes; ++node) start(node, nodes, secret.path.string());
  }
  LifeEnd end() {
    for (std::size_t node = 0; node < launchers_.size(); ++node) wait(node);
    for (std::size_t node = 0; node < ended_.size(); ++node) judge(node);
    if (const auto left = empty_.left_after(kGoneWithin); !left.empty()) {
      end_.left.push_back(left);
      empty_.kill_all();
    }
    return end_;
  }

 private:
  void start(std::size_t node, std::size_t nodes, const std::string& secret) {
    Words command = rondorun({"--nproc-per-node", std::to_string(kRanks / nodes), "--grace-period", "0.3", "--prefix",
                              "none", "--join-timeout", "10"});
    if (nodes > 1)
      command = command + Words{"--nnodes",      std::to_string(nodes), "--node-rank",   std::to_string(node),
                                "--master-addr", "127.0.0.1",           "--secret-file", secret};
    command = command + Words{"--", tool("patient"), "busy", "0.02"};
    const int depth = kEveryCall - (moment_.victim - kLauncher);
    if (node == 0) command = Words{tool("doomed"), std::to_string(depth), std::to_string(moment_.call)} + command;
    launchers_.emplace_back(
        empty_.host().inside(command),
        Running::How{.environment = {"RONDO_TRANSPORT=" + std::string(moment_.place->transport)}, .limit = kHungAfter});
  }
  void wait(std::size_t node) {
    Running& launcher = launchers_[node];
    try {
      ended_.push_back(launcher.wait());
    } catch (const std::exception&) {
      ended_.push_back({});
      end_.hung.push_back(fmt::format("the launcher of node {} does not end", node));
    }
    last_us_ = now_us();
    if (node > 0) return;
    for (const std::string& line : launcher.lines_so_far("killed ")) {
      killed_us_ = std::stoll(line);
      end_.where = line.substr(line.find(" at ") + 4);
    }
    for (const std::string& line : launcher.lines_so_far("moments ")) end_.moments = std::stoul(line);
  }

  // Who is killed when all ranks have ended well may have ended well itself; before the first has started there is
  // nobody to say anything.
  void judge(std::size_t node) {
    const Ended& ended = ended_[node];
    if (ended.code == -1) return;
    const std::size_t done = count("done "), joined = count("joined ");
    const auto told = [&](const char* what) {
      return fmt::format("node {} {}: exit code {}, {} ranks had begun and {} were done; it said\n{}{}", node, what,
                         ended.code, joined, done, ended.out, ended.err);
    };
    if (killed_us_ == 0) {
      if (ended.code != 0 || done != kRanks) end_.wrong.push_back(told("failed, and nobody was killed"));
      return;
    }
    end_.longest_ms = std::max(0.0, static_cast<double>(last_us_ - killed_us_) / 1e3);
    if (ended.code == 0 && done < kRanks) end_.wrong.push_back(told("succeeded"));
    if (ended.code != 0 && joined > 0 && done < kRanks && !names(node)) end_.silent.push_back(told("does not say why"));
    if (node > 0 && ended.code != 0 && !names(node)) end_.silent.push_back(told("does not say why"));
  }
  bool names(std::size_t node) const {
    const auto says = [&](const char* text) { return ended_[node].err.find(text) != std::string::npos; };
    if (node > 0) return says("node 0");
    if (moment_.victim == kLauncher) return says("the launcher of the job");
    return says(moment_.victim == kWitness ? "the witness of the job" : "the supervisor of the job");
  }
  std::size_t count(const std::string& word) {
    std::size_t lines = 0;
    for (Running& launcher : launchers_) lines += launcher.lines_so_far(word).size();
    return lines;
  }

  const Moment& moment_;
  const EmptyHost& empty_;
  std::deque<Running> launchers_;
  std::vector<Ended> ended_;
  long long killed_us_ = 0, last_us_ = 0;
  LifeEnd end_{};
};

}  // namespace

LifeEnd launch_shortly(const Moment& moment, const EmptyHost& host, const SecretFile& secret) {
  return LaunchLife(moment, host, secret).end();
}

}  // namespace rondo::test
