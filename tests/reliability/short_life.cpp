// SPDX-License-Identifier: Apache-2.0
#include "tests/reliability/short_life.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <sstream>

#include "tests/reliability/moments.hpp"
#include "tests/support/spoken.hpp"
#include "tests/support/temporary_folder.hpp"

namespace rondo::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kHungAfter = 45s, kGoneWithin = 10s;
constexpr const char* kPort = "29500";

class ShortLife {
 public:
  ShortLife(const Moment& moment, const EmptyHost& empty, const SecretFile& secret)
      : moment_(moment), empty_(empty), environment_{"RONDO_TRANSPORT=" + std::string(moment.place->transport)} {
    if (moment.place->has_server) start_server(secret.path.string());
    const int processes = moment.phase == "grow" ? kLifeRanks + 1 : kLifeRanks;
    for (int id = 0; id < processes; ++id) start(id);
  }
  LifeEnd end() {
    for (auto& [id, process] : processes_) wait(id, process);
    if (server_) {
      ::kill(-server_->pid(), SIGTERM);
      server_->wait();
      if (moment_.victim == kLifeServer) take_doom(*server_);
    }
    judge();
    if (const auto left = empty_.left_after(kGoneWithin); !left.empty()) {
      end_.left.push_back(left);
      empty_.kill_all();
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("meeting") && name != "saved") end_.left.push_back(name);
    }
    return end_;
  }

 private:
  bool dies(int id) const { return id == moment_.victim && moment_.call > 0; }
  bool ends_itself(int id) const { return moment_.phase == "shrink" && id == kLifeRanks - 1; }
  Words doomed(int phase) const { return {tool("doomed"), std::to_string(phase), std::to_string(moment_.call)}; }

  void start_server(const std::string& secret) {
    environment_.push_back("RONDO_SECRET_FILE=" + secret);
    const Words program{tool("rondo-rendezvous"), "--port", kPort, "--secret-file", secret};
    const Words watched = moment_.victim == kLifeServer ? doomed(kEveryCall) + program : program;
    // Whoever watches over it starts it again.
    const std::string both = fmt::format("{}; exec {}", fmt::join(watched, " "), fmt::join(program, " "));
    server_ = std::make_unique<Running>(empty_.host().inside({"sh", "-c", both}), Running::How{.own_group = true});
    server_->lines("127.0.0.1:", 1);  // where nobody serves, rank 0 does
  }
  void start(int id) {
    const std::string place = moment_.place->has_server ? "tcp://127.0.0.1:" + std::string(kPort)
                                                        : "file://" + (folder_.path / "meeting").string();
    Words command{tool("mortal"),     moment_.phase, std::to_string(moment_.victim),
                  std::to_string(id), place,         folder_.path.string()};
    if (moment_.place->two_nodes) command.push_back(id % kLifeRanks < kLifeRanks / 2 ? "one" : "other");
    if (id == moment_.victim) command = doomed(phase_of(moment_.phase)) + command;
    processes_.try_emplace(id, empty_.host().inside(command),
                           Running::How{.environment = environment_, .limit = kHungAfter});
  }

  void take_doom(Running& process) {
    for (const std::string& line : process.lines_so_far("killed ")) {
      killed_us_ = std::stoll(line);
      end_.where = line.substr(line.find(" at ") + 4);
    }
    for (const std::string& line : process.lines_so_far("moments ")) end_.moments = std::stoul(line);
  }
  void wait(int id, Running& process) {
    try {
      codes_[id] = process.wait().code;
      last_us_ = std::max(last_us_, now_us());
    } catch (const std::exception&) {
      codes_[id] = -1;
      end_.hung.push_back(fmt::format("{} does not end; it said{}", id, said_by(process)));
    }
    if (id == moment_.victim) take_doom(process);
  }
  static std::string said_by(Running& process) {
    std::string all;
    for (const std::string& line : process.lines_so_far("")) all += "\n    " + line;
    return all;
  }

  // Rank 0's server goes with it, and has no number of a rank. Of a joiner that was gone before it enlisted nobody
  // knows more than that none came.
  bool names_victim(const std::string& error) const {
    std::istringstream words(error);
    long long at_us = 0;
    int culprit = -1;
    words >> at_us >> culprit;
    if (culprit == moment_.victim || moment_.victim == kLifeServer) return true;
    const auto says = [&](const std::string& text) { return culprit == -1 && error.find(text) != std::string::npos; };
    if (moment_.victim == kLifeJoiner) return says("had come to join");
    return says(fmt::format("rank {}", moment_.victim)) ||
           (moment_.victim == 0 && !moment_.place->has_server && says("rendezvous"));
  }
  // The server was gone in their midst: who was a member waits for who was not, and has given up.
  bool all_joined() {
    return std::all_of(processes_.begin(), processes_.end(), [this](auto& one) {
      return one.first >= kLifeRanks || dies(one.first) || !one.second.lines_so_far("joined").empty();
    });
  }
  bool names_other(const std::string& error) const {
    return moment_.phase == "shrink" && error.find(fmt::format(" {} ", kLifeRanks - 1)) != std::string::npos;
  }
  void judge() {
    if (moment_.victim == kLifeServer && !all_joined()) return;
    for (auto& [id, process] : processes_) {
      if (dies(id) || ends_itself(id) || codes_[id] == -1) continue;
      hear(id, process);
    }
    if (killed_us_ > 0) end_.longest_ms = std::max(0.0, static_cast<double>(last_us_ - killed_us_) / 1e3);
    for (const auto& [id, world] : worlds_)
      if (world != expected_world())
        end_.wrong.push_back(fmt::format("{} is with {}, not with {}", id, world, expected_world()));
  }
  void hear(int id, Running& process) {
    bool named = false;
    for (const std::string& line : process.lines_so_far("error ")) {
      if (names_victim(line)) {
        if (!std::exchange(named, true) && killed_us_ > 0)
          end_.told_ms.push_back(static_cast<double>(std::stoll(line) - killed_us_) / 1e3);
      } else if (!names_other(line)) {
        end_.wrong.push_back(fmt::format("{} says {}", id, line));
      }
    }
    for (const std::string& line : process.lines_so_far("checkpoint "))
      if (line != "whole") end_.wrong.push_back("the checkpoint is broken");
    const auto worlds = process.lines_so_far("world ");
    if (!worlds.empty() && codes_[id] == 0) worlds_[id] = worlds.back().substr(worlds.back().find(' ') + 1);
    const bool may_fail = moment_.phase == "join" && named;
    if (codes_[id] != 0 && !may_fail)
      end_.silent.push_back(fmt::format("{} ends with {}:{}", id, codes_[id], said_by(process)));
  }
  // Who lives and could join; all, where they had said goodbye.
  std::string expected_world() const {
    std::set<int> ids;
    for (const auto& [id, code] : codes_) {
      const bool was_there = moment_.phase == "farewell" || !dies(id);
      if (was_there && !ends_itself(id) && (code == 0 || moment_.phase == "farewell")) ids.insert(id);
    }
    return fmt::format("{}", fmt::join(ids, " "));
  }

  const Moment& moment_;
  const EmptyHost& empty_;
  Words environment_;
  TemporaryFolder folder_;
  std::unique_ptr<Running> server_;
  std::map<int, Running> processes_;
  std::map<int, int> codes_;
  std::map<int, std::string> worlds_;
  long long killed_us_ = 0, last_us_ = 0;
  LifeEnd end_{};
};

}  // namespace

std::string Moment::replay() const {
  return fmt::format("--phase {} --place {} --rank {} --call {}", phase, place->name, victim, call);
}

LifeEnd live_shortly(const Moment& moment, const EmptyHost& host, const SecretFile& secret) {
  return ShortLife(moment, host, secret).end();
}

}  // namespace rondo::test
