// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <exception>

#include "comm/base/standard_streams.hpp"
#include "rendezvous/secret.hpp"
#include "tools/rondorun/launch.hpp"
#include "tools/rondorun/options.hpp"

int main(int argc, char** argv) {
  using namespace rondo;
  open_missing_streams();
  try {
    const auto line = launcher::parse_command_line(argc, argv);
    if (const auto* stop = std::get_if<launcher::Stop>(&line)) return stop->exit_code;
    const auto& options = std::get<launcher::Options>(line);
    if (!options.new_secret.empty()) {
      rendezvous::Secret::generate().to_file(options.new_secret);
      return 0;
    }
    return process::run_supervised(process::Launcher::whole_process, [&](process::Supervision& supervision) {
      return launcher::launch(options, supervision);
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "rondorun: {}\n", error.what());
    return 1;
  }
}
