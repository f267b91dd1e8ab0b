// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/far_side.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <charconv>
#include <chrono>
#include <filesystem>

#include <rondo/error.hpp>

#include "comm/base/machine.hpp"
#include "comm/base/plain_text.hpp"
#include "comm/base/system_error.hpp"
#include "rendezvous/secret.hpp"

namespace rondo::launcher {
namespace {

// No line of a rank begins so, unless it writes for itself.
constexpr std::string_view kMark = "rondorun/far-side: ", kHere = "here ", kEnded = "ended ";
constexpr std::size_t kMostDigits = 8;  // of the bytes of an order
constexpr std::chrono::seconds kOrderLimit{30};

void say(std::string_view what, std::string_view value) {
  fmt::print(stderr, "{}{}{}\n", kMark, what, value);
  std::fflush(stderr);
}

// No byte beyond them: the next ones are signals.
std::string read_bytes(std::size_t bytes, std::chrono::steady_clock::time_point deadline) {
  std::string text(bytes, '\0');
  for (std::size_t have = 0; have < bytes;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{STDIN_FILENO, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0)
      throw Error(ErrorCode::timeout, "no order comes on standard input within 30 s");
    const ssize_t got = ::read(STDIN_FILENO, text.data() + have, bytes - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error(ErrorCode::peer_lost, "standard input ended before the order was there");
    have += static_cast<std::size_t>(got);
  }
  return text;
}

Order read_order() {
  const auto deadline = std::chrono::steady_clock::now() + kOrderLimit;
  std::string size;
  while (!size.ends_with(':') && size.size() <= kMostDigits) size += read_bytes(1, deadline);
  return order_of(read_bytes(order_bytes(size), deadline));
}

// The ranks get an input that has ended.
Fd keep_input() {
  Fd input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input || !nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0) throw_errno("cannot keep standard input");
  return input;
}

int obey(const std::function<int(const std::vector<std::string>&, Options)>& run) {
  const Order order = read_order();
  if (order.version != RONDO_VERSION) return 2;  // who gave it says so
  for (const std::string& entry : order.environment) {
    const auto equals = entry.find('=');
    ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  if (::chdir(order.folder.c_str()) != 0)
    throw_errno(fmt::format("cannot enter the job's folder {} on host {}", order.folder, host_name()));
  Options options;
  options.secret = rendezvous::Secret::from_hex(order.secret);
  const Fd starter = keep_input();
  options.starter = starter.get();
  return run(order.words, std::move(options));
}

}  // namespace

int far_side(const std::function<int(const std::vector<std::string>&, Options)>& run) {
  say(kHere, RONDO_VERSION);
  int code = 1;
  try {
    code = obey(run);
  } catch (const std::exception& error) {
    complain("rondorun", error.what());
  }
  say(kEnded, std::to_string(code));
  return code;
}

std::optional<FarSaid> said_by_far_side(std::string_view line) {
  const auto at = line.rfind(kMark);  // a rank that writes for itself may have begun the line
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + kMark.size());
  if (line.starts_with(kHere)) return FarSaid{.version = std::string(line.substr(kHere.size())), .exit_code = {}};
  if (!line.starts_with(kEnded)) return std::nullopt;
  line.remove_prefix(kEnded.size());
  if (line.ends_with('\r')) line.remove_suffix(1);  // as a terminal ends lines
  constexpr int kHighest = 255;
  int code = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), code);
  if (error != std::errc{} || end != line.data() + line.size() || code < 0 || code > kHighest)
    return FarSaid{.version = {}, .exit_code = {}, .odd = line.empty() ? "nothing" : std::string(line)};
  return FarSaid{.version = {}, .exit_code = code};
}

}  // namespace rondo::launcher
