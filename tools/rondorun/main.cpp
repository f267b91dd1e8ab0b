// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <exception>
#include <optional>

#include "comm/base/plain_text.hpp"
#include "comm/base/standard_streams.hpp"
#include "rendezvous/secret.hpp"
#include "tools/rondorun/far_side.hpp"
#include "tools/rondorun/launch.hpp"
#include "tools/rondorun/mps.hpp"
#include "tools/rondorun/options.hpp"
#include "tools/rondorun/over_ssh.hpp"

namespace {

using namespace rondo;

int run(const std::vector<std::string>& words, launcher::Options known) {
  const auto line = launcher::CommandLine().parse(words, std::move(known));
  if (const auto* stop = std::get_if<launcher::Stop>(&line)) {
    say(*stop);
    return stop->exit_code;
  }
  launcher::Options options = std::get<launcher::Options>(line);
  if (!options.new_secret.empty()) {
    rendezvous::Secret::generate().to_file(options.new_secret);
    return 0;
  }
  const bool over_ssh = !options.hosts.empty();
  if (over_ssh)
    options.secret = options.secret_file.empty() ? rendezvous::Secret::generate()
                                                 : rendezvous::Secret::from_file(options.secret_file);
  std::optional<launcher::Mps> mps;  // the other hosts' launchers have their own
  if (options.mps && !over_ssh) options.mps_pipes = mps.emplace().pipes();
  return process::run_supervised(process::Launcher::whole_process, [&](process::Supervision& supervision) {
    return over_ssh ? launcher::launch_over_ssh(options, supervision) : launcher::launch(options, supervision);
  });
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 1 && words.front() == launcher::kFarSide) return launcher::far_side(run);
    return run(words, {});
  } catch (const std::exception& error) {
    complain("rondorun", error.what());
    return 1;
  }
}
