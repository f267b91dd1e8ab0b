// SPDX-License-Identifier: Apache-2.0
// rondo: looks at jobs, at those that run and at what others leave behind.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <limits>
#include <vector>

#include "comm/base/plain_text.hpp"
#include "comm/base/standard_streams.hpp"
#include "tools/rondo/page.hpp"
#include "tools/rondo/top.hpp"

int main(int argc, char** argv) {
  using namespace rondo;
  open_missing_streams();
  CLI::App app("Looks at jobs that run, and at what others leave behind.", "rondo");
  app.set_version_flag("--version", fmt::format("rondo {}", RONDO_VERSION), "says which one this is");
  app.require_subcommand(1);
  auto* explain =
      app.add_subcommand("explain", "what happened in a job that failed, from the folder that rondorun left");
  std::vector<std::filesystem::path> folders;
  bool trace = false;
  explain->add_option("FOLDER", folders, "the folder; of several hosts one of each")->required();
  explain->add_flag("--trace", trace, "instead of the page a trace for chrome://tracing or Perfetto, as JSON");
  auto* top = app.add_subcommand("top", "what the ranks of a job do that runs on this host under rondorun");
  pid_t process = 0;
  bool json = false;
  top->add_option("PID", process, "of its launcher or of a rank; needed where several jobs run")
      ->check(CLI::Range(1, std::numeric_limits<pid_t>::max()));
  top->add_flag("--json", json, "one document of JSON instead, once");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    complain("rondo", error.what());
    return 2;
  }
  try {
    if (*top && !json) return records::show_job(process), 0;
    std::string out;
    if (*top) {
      out = records::job_as_json(process);
    } else {
      const auto folder = records::read_folders(folders);
      out = trace ? records::trace_of(folder) : records::page_of(folder);
    }
    const bool written = std::fwrite(out.data(), 1, out.size(), stdout) == out.size() && std::fflush(stdout) == 0;
    if (!written) throw std::system_error(errno, std::generic_category(), "cannot write the page");
    return 0;
  } catch (const std::exception& error) {
    complain("rondo", error.what());
    return 2;
  }
}
