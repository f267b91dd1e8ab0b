// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/failure_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>

#include "comm/base/fd.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/system_error.hpp"

namespace rondo::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr std::string_view kBegins = "rondo-failure-";

// Of a job's name, what no shell and no file system minds.
std::string plain(std::string text) {
  constexpr std::size_t kMost = 64;
  for (char& letter : text)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '-' && letter != '.') letter = '_';
  return text.substr(0, kMost);
}

std::string name_of(const Placement& at, std::chrono::system_clock::time_point happened) {
  const std::time_t time = std::chrono::system_clock::to_time_t(happened);
  std::tm local{};
  ::localtime_r(&time, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  const std::string node = at.nodes > 1 ? fmt::format("-node{}", at.node) : "";
  return fmt::format("{}{}-{}{}", kBegins, plain(at.job), text, node);
}

void check_count(const fs::path& where) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(where))
    count += entry.path().filename().string().starts_with(kBegins) ? 1 : 0;
  if (count < kMostFolders) return;
  throw Error(ErrorCode::system,
              fmt::format("{} holds {} folders of failures already: remove some", where.string(), count));
}

// One that nobody has made before.
fs::path make_folder(const fs::path& where, const std::string& name) {
  check_count(where);
  for (std::size_t i = 1; i <= kMostFolders; ++i) {
    const fs::path folder = where / (i == 1 ? name : fmt::format("{}-{}", name, i));
    if (::mkdir(folder.c_str(), 0700) == 0) return folder;
    if (errno != EEXIST) throw_errno("cannot make the folder " + folder.string());
  }
  throw Error(ErrorCode::system, fmt::format("cannot make the folder {}: its name is taken", (where / name).string()));
}

void write_file(const fs::path& path, std::string_view text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) throw_errno("cannot write " + path.string());
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_errno("cannot write " + path.string());
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::int64_t us(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::string state_of(const RankFacts& facts) { return facts.state == 0 ? "" : std::string(1, facts.state); }

Json rank_json(const RankFacts& then, const RankFacts& now) {
  constexpr std::size_t kMostLetters = 500;
  Json lines = Json::array();
  for (const auto& line : now.last_lines) lines.push_back(line.substr(0, kMostLetters));
  Json json{{"rank", now.rank}, {"pid", now.pid}, {"state", state_of(then)}};
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

Fd FailureFolder::open_record(int rank) { return options_.failure_dir.empty() ? Fd() : records_.open(rank); }

void FailureFolder::look(const Ranks& ranks) {
  if (options_.failure_dir.empty() || look_) return;
  look_ = Look{.happened = std::chrono::system_clock::now(), .when_it_happened = ranks.facts()};
  records_.ask();
}

std::string FailureFolder::leave(const Failure& failure, const Ranks& ranks) {
  if (!look_ || failure.never_ran()) return "";
  const auto now = ranks.facts();
  records_.take_all();
  std::string sentence;
  try {
    sentence = fmt::format("what each rank did last{}: rondo explain {}",
                           options_.starter >= 0 ? " on host " + host_name() : "",
                           write(failure, now).lexically_normal().string());
  } catch (const std::exception& error) {
    sentence = fmt::format("what the ranks did last is lost: {}", error.what());
  }
  look_.reset();
  records_.forget();
  return sentence;
}

// Throws Error(system), and leaves what has been written. Returns the folder's path.
fs::path FailureFolder::write(const Failure& failure, const std::vector<RankFacts>& now) const {
  const fs::path folder = make_folder(options_.failure_dir, name_of(at_, look_->happened));
  Json ranks = Json::array();
  for (std::size_t i = 0; i < now.size(); ++i) ranks.push_back(rank_json(look_->when_it_happened[i], now[i]));
  const Json json{{"format", 1},
                  {"job", at_.job},
                  {"node", at_.node},
                  {"nodes", at_.nodes},
                  {"host", host_name()},
                  {"world_size", at_.world_size},
                  {"restarts", at_.restarts},
                  {"command", options_.command},
                  {"happened_us", us(look_->happened)},
                  {"sentence", failure.sentence},
                  {"failed_rank", failure.rank},
                  {"ranks", std::move(ranks)}};
  write_file(folder / "job.json", json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  std::size_t left = kMostFolderBytes;
  for (const RankFacts& facts : now) {
    const std::string record = records_.latest(facts.rank);
    if (record.empty() || record.size() > left) continue;
    write_file(folder / fmt::format("rank{}.json", facts.rank), record);
    left -= record.size();
  }
  return folder;
}

}  // namespace rondo::launcher
