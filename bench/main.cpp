// SPDX-License-Identifier: Apache-2.0
// main() of every *_perf program; kProgram (program.cpp) names the row of the table of cases. Exit status: 0 all
// results right, 1 a wrong value or a failure, 2 wrong flags.
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <rondo/rondo.hpp>
#include <thread>

#include "bench/report.hpp"
#include "comm/base/env.hpp"
#include "comm/base/plain_text.hpp"
#include "comm/base/standard_streams.hpp"

namespace rondo::bench {

extern const char* const kProgram;

namespace {

std::unique_ptr<Report> make_report(const Flags& flags, int argc, char** argv) {
  std::vector<std::unique_ptr<Report>> reports;
  if (!flags.json.empty()) reports.push_back(make_json(flags.json, {argv, argv + argc}, flags));
  reports.push_back(flags.csv ? make_csv(stdout, flags) : make_table(stdout, flags));
  return make_all(std::move(reports));
}

// Ranks as threads. The first failure that is not an echo of another's is thrown.
std::uint64_t sweep_threads(const Case& what, const Flags& flags, const Options& options, Report& report) {
  std::vector<Communicator> communicators = Communicator::local(flags.local_ranks(), options);
  std::mutex mutex;
  std::exception_ptr cause, echo;
  std::uint64_t wrong = 0;
  const auto run = [&](Communicator& communicator) {
    std::exception_ptr failure;
    bool echoes = false;
    try {
      const std::uint64_t mine = sweep(communicator, what, flags, communicator.rank() == 0 ? &report : nullptr);
      const std::lock_guard lock(mutex);
      wrong += mine;
      return;
    } catch (const Error& error) {
      echoes = error.error_code() == ErrorCode::aborted;
      failure = std::current_exception();
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    communicator.abort();
    const std::lock_guard lock(mutex);
    std::exception_ptr& slot = echoes ? echo : cause;
    if (slot == nullptr) slot = failure;
  };
  {
    std::vector<std::jthread> threads;
    for (Communicator& communicator : communicators) threads.emplace_back([&] { run(communicator); });
  }
  if (cause != nullptr || echo != nullptr) std::rethrow_exception(cause != nullptr ? cause : echo);
  return wrong;
}

int run(const std::string& program, int argc, char** argv) {
  const auto parsed = parse_flags(program, argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const Flags& flags = std::get<Flags>(parsed);
  // Before any thread; the communicators read them.
  if (!flags.algorithm.empty()) ::setenv("RONDO_ALGORITHM", flags.algorithm.c_str(), 1);
  if (!flags.protocol.empty()) ::setenv("RONDO_PROTOCOL", flags.protocol.c_str(), 1);
  Options options{.device = flags.device};
  if (flags.timeout_s > 0) options.timeout = std::chrono::seconds(flags.timeout_s);
  const auto report = make_report(flags, argc, argv);
  const Case& what = find_case(program);
  if (flags.local_ranks() > 1) {
    if (env("RANK") || env("WORLD_SIZE")) {
      throw UsageError("-g and -t make ranks as threads of one process; leave them out under a launcher");
    }
    return sweep_threads(what, flags, options, *report) == 0 ? 0 : 1;
  }
  Communicator communicator = Communicator::from_environment(options);
  return sweep(communicator, what, flags, communicator.rank() == 0 ? report.get() : nullptr) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rondo::bench

int main(int argc, char** argv) {
  rondo::open_missing_streams();
  const std::string program = rondo::bench::kProgram;
  try {
    return rondo::bench::run(program, argc, argv);
  } catch (const rondo::bench::UsageError& error) {
    rondo::complain(program, error.what());
    return 2;
  } catch (const std::exception& error) {
    rondo::complain(program, error.what());
    return 1;
  }
}
