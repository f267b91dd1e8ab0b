// SPDX-License-Identifier: Apache-2.0
// A rank that makes a communicator: meeter RANK. That rank (-1: none) dies when all have met at the server for the last
// time, before it has a connection with any other. Says "begun PID", then "made", and waits in a barrier; or the error.
#include <unistd.h>

#include <fmt/format.h>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include <rondo/rondo.hpp>

#include "runtime/launchers/environment.hpp"
#include "runtime/meeting.hpp"
#include "tests/support/passing_store.hpp"

namespace {

using namespace rondo;

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(1, whole.data(), whole.size()) < 0) ::_exit(9);
}

// As from_environment() does, with that store.
void meet_and_die(const Options& options) {
  const auto launch = runtime::read_launch(runtime::process_variables());
  Bootstrap bootstrap = runtime::meet(*launch, options, std::chrono::steady_clock::now() + options.join_timeout);
  bootstrap.name = runtime::next_world_name(*bootstrap.store, bootstrap.generation, bootstrap.rank);
  bootstrap.store = std::make_shared<test::LastMeeting>(bootstrap.store, [] { ::raise(SIGKILL); });
  make_communicator(std::move(bootstrap), options);
}

}  // namespace

int main(int, char** argv) {
  try {
    say(fmt::format("begun {}", ::getpid()));
    const Options options{.timeout = std::chrono::seconds(120), .join_timeout = std::chrono::seconds(60)};
    if (runtime::process_variables()["RANK"] == argv[1]) meet_and_die(options);
    Communicator comm = Communicator::from_environment(options);
    say("made");
    comm.barrier();
    return 0;
  } catch (const Error& error) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    say(fmt::format("error {} {} {}", std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                    error.culprit(), error.what()));
    return 1;
  }
}
