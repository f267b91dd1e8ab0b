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

#include "comm/base/fd.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/system_error.hpp"
#include "tools/rondorun/job_document.hpp"

namespace rondo::launcher {
namespace {

namespace fs = std::filesystem;
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

}  // namespace

void FailureFolder::look(const Ranks& ranks) {
  if (options_.failure_dir.empty() || look_) return;
  look_ = Look{.happened = std::chrono::system_clock::now(),
               .when_it_happened = ranks.facts(),
               .asked = process::EventLoop::Clock::now()};
  records_.ask();
}

std::string FailureFolder::leave(const Failure& failure, const Ranks& ranks) {
  if (!look_ || failure.never_ran()) return "";
  const auto now = ranks.facts();
  records_.take_all();
  Records::Answers records;
  for (const RankFacts& facts : now) records[facts.rank] = records_.latest(facts.rank, look_->asked);
  const std::string job = job_document(options_, at_,
                                       {.happened = look_->happened,
                                        .sentence = failure.sentence,
                                        .failed_rank = failure.rank,
                                        .then = look_->when_it_happened,
                                        .now = now});
  const std::string sentence = write(look_->happened, job, records, "what each rank did last");
  look_.reset();
  records_.forget();
  return sentence;
}

std::string FailureFolder::leave_while_running(const Ranks& ranks, const Records::Answers& answers) const {
  if (options_.failure_dir.empty()) return "what each rank does is not written, as the failure directory is none";
  const auto now = std::chrono::system_clock::now();
  return write(now, job_document(options_, at_, {.happened = now, .now = ranks.facts()}), answers,
               "what each rank does now");
}

// A sentence about it, also where it could not be written; what has been written stays.
std::string FailureFolder::write(std::chrono::system_clock::time_point happened, const std::string& job,
                                 const Records::Answers& records, const std::string& about) const {
  try {
    const fs::path folder = make_folder(options_.failure_dir, name_of(at_, happened));
    write_file(folder / "job.json", job);
    std::size_t left = kMostFolderBytes;
    for (const auto& [rank, record] : records) {
      if (record.empty() || record.size() > left) continue;
      write_file(folder / fmt::format("rank{}.json", rank), record);
      left -= record.size();
    }
    return fmt::format("{}{}: rondo explain {}", about, options_.starter >= 0 ? " on host " + host_name() : "",
                       folder.lexically_normal().string());
  } catch (const std::exception& error) {
    return fmt::format("{} is lost: {}", about, error.what());
  }
}

}  // namespace rondo::launcher
