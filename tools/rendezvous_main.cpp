// SPDX-License-Identifier: Apache-2.0
// rondo-rendezvous: the server alone, until SIGTERM or SIGINT. Its address is the one line on stdout.
#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "comm/base/plain_text.hpp"
#include "comm/base/standard_streams.hpp"
#include "comm/setup/encryption_choice.hpp"
#include "rendezvous/server.hpp"
#include "rendezvous/socket.hpp"

namespace {

using namespace rondo;

struct Flags {
  std::vector<std::string> bind{"127.0.0.1"};
  std::uint16_t port = 29500;
  std::string secret_file, job = "job";
  int world_size = -1;
  bool insecure = false, encrypt = false;
};

void declare(CLI::App& app, Flags& flags) {
  app.add_option("--bind", flags.bind, "addresses to listen on (127.0.0.1); a wildcard must be asked for")
      ->delimiter(',');
  app.add_option("--port", flags.port, "port to listen on (29500); 0: any free one")->check(CLI::Range(0, 65535));
  app.add_option("--secret-file", flags.secret_file, "file of mode 0600 with the job's 64 hexadecimal digits");
  app.add_flag("--insecure", flags.insecure, "no secret: whoever reaches the port may join");
  app.add_flag("--encrypt", flags.encrypt, "TLS for all connections, which ranks want with RONDO_ENCRYPT=1 alone");
  app.add_option("--job", flags.job, "the job's id, the same as the ranks' RONDO_JOB (job)");
  app.add_option("--world-size", flags.world_size, "number of ranks; without it, the first rank decides")
      ->check(CLI::Range(1, 1 << 20));
}

std::optional<rendezvous::Secret> secret_of(const Flags& flags) {
  const std::string path = flags.secret_file.empty() ? env("RONDO_SECRET_FILE").value_or("") : flags.secret_file;
  if (flags.insecure && flags.secret_file.empty()) return std::nullopt;
  if (path.empty() || flags.insecure) {
    throw Error(ErrorCode::invalid_argument, "give either --secret-file (or RONDO_SECRET_FILE) or --insecure");
  }
  return rendezvous::Secret::from_file(path);
}

// Blocked before any thread starts, so that only sigwait sees them.
sigset_t block_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

int serve(const Flags& flags) {
  const sigset_t ends = block_signals();
  const rendezvous::Server server({.bind = flags.bind,
                                   .port = flags.port,
                                   .secret = secret_of(flags),
                                   .encrypted = flags.encrypt || encryption_is_wanted(),
                                   .job = flags.job,
                                   .world_size = flags.world_size});
  fmt::print("{}\n", rendezvous::endpoint_text(flags.bind.front(), server.port()));
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  Flags flags;
  CLI::App app("The rendezvous server of a rondo job, alone", "rondo-rendezvous");
  declare(app, flags);
  try {
    app.parse(argc, argv);
    return serve(flags);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    complain("rondo-rendezvous", error.what());
    return 2;
  } catch (const Error& error) {
    complain("rondo-rendezvous", error.what());
    return error.error_code() == ErrorCode::invalid_argument ? 2 : 1;
  }
}
