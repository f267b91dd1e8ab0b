// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/job_document.hpp"

#include <nlohmann/json.hpp>

#include "comm/base/machine.hpp"

namespace rondo::launcher {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t us(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::string letter(char state) { return state == 0 ? "" : std::string(1, state); }

Json rank_json(char then, const RankFacts& now) {
  constexpr std::size_t kMostLetters = 500;
  Json lines = Json::array();
  for (const auto& line : now.last_lines) lines.push_back(line.substr(0, kMostLetters));
  Json json{{"rank", now.rank}, {"pid", now.pid}, {"state", letter(then)}};
  if (now.replaces) json["replaces"] = true;
  if (now.ended) {
    const auto ago = process::EventLoop::Clock::now() - now.ended_at;
    json["exit_code"] = now.ended->code;
    json["signal"] = now.ended->signal;
    json["ended_us"] =
        us(std::chrono::system_clock::now()) - std::chrono::duration_cast<std::chrono::microseconds>(ago).count();
  }
  json["last_lines"] = std::move(lines);
  return json;
}

}  // namespace

std::string job_document(const Options& options, const Placement& at, const Account& account) {
  Json ranks = Json::array();
  for (std::size_t i = 0; i < account.now.size(); ++i)
    ranks.push_back(rank_json(account.then.empty() ? account.now[i].state : account.then[i].state, account.now[i]));
  const Json json{{"format", 1},
                  {"job", at.job},
                  {"node", at.node},
                  {"nodes", at.nodes},
                  {"host", host_name()},
                  {"world_size", at.world_size},
                  {"restarts", at.restarts},
                  {"command", options.command},
                  {"happened_us", us(account.happened)},
                  {"sentence", account.sentence},
                  {"failed_rank", account.failed_rank},
                  {"ranks", std::move(ranks)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace rondo::launcher
