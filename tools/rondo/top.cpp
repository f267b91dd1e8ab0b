// SPDX-License-Identifier: Apache-2.0
#include "tools/rondo/top.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "tools/rondo/live.hpp"
#include "tools/rondo/visit.hpp"
#include "tools/rondorun/screen.hpp"

namespace rondo::records {
namespace {

constexpr std::chrono::seconds kBetweenLooks{1};
constexpr int kHeight = 24;  // of a terminal that does not say

int height_of_terminal() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : kHeight;
}

void print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw std::system_error(errno, std::generic_category(), "cannot write the page");
}

std::vector<std::string> page_of_now(const Snapshot& snapshot) {
  const Folder folder = read_snapshot(snapshot);
  std::vector<std::string> lines = table_of(folder);
  lines.insert(lines.begin(), heading_of(folder));
  return lines;
}

Snapshot first_look(Visit& visit) {
  if (auto snapshot = visit.look()) return std::move(*snapshot);
  throw std::runtime_error("the job ended while it was looked at");
}

}  // namespace

// Each row is cut to the terminal's width; what was seen last stays there.
void show_job(pid_t process) {
  Visit visit(find_job(process));
  std::optional<Snapshot> snapshot = first_look(visit);
  if (::isatty(STDOUT_FILENO) != 1) {
    for (const std::string& line : page_of_now(*snapshot)) print(line + "\n");
    return;
  }
  launcher::Screen screen(true);
  for (; snapshot; snapshot = visit.look()) {
    print(screen.frame("", page_of_now(*snapshot), height_of_terminal()));
    std::this_thread::sleep_for(kBetweenLooks);
  }
  print("\nthe job has ended\n");
}

std::string job_as_json(pid_t process) {
  Visit visit(find_job(process));
  return live_json(read_snapshot(first_look(visit)));
}

}  // namespace rondo::records
