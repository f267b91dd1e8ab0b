// SPDX-License-Identifier: Apache-2.0
// What people, scripts and a launcher on another host write behind rondorun.
#include <algorithm>
#include <variant>

#include "tests/fuzz/same_line.hpp"
#include "tests/fuzz/targets.hpp"
#include "tools/rondorun/options.hpp"

namespace rondo::fuzz {
namespace {

using namespace launcher;

constexpr unsigned kOneIn = 256;            // lines is read by a reader of its own, too
constexpr std::size_t kMostSaid = 1 << 20;  // bytes of a page, a line for each rank that it binds

// Each ends with a zero, as in /proc/PID/cmdline.
std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t end = 0; !text.empty(); text.remove_prefix(std::min(text.size(), end + 1))) {
    end = std::min(text.find('\0'), text.size());
    words.emplace_back(text.substr(0, end));
  }
  return words;
}

void check(const Stop& stop) {
  expect(stop.exit_code == (stop.complaint.empty() ? 0 : 2), "an end of exit code " + std::to_string(stop.exit_code));
  expect(!stop.says.empty() || !stop.complaint.empty(), "nothing is launched, and nothing is said");
  expect(is_harmless(stop.says), "a page that steers terminals");
  expect(stop.says.size() < kMostSaid, "a page of " + std::to_string(stop.says.size()) + " bytes");
}

void check(const Options& options) {
  if (!options.new_secret.empty()) return;
  expect(!options.command.empty() && !options.command.front().empty(), "no program");
  expect(
      options.nodes >= 1 && options.nodes <= 65536 && options.least_nodes < options.nodes && options.least_nodes >= 0,
      "a job of " + std::to_string(options.nodes) + " nodes");
  expect(options.node >= -1 && options.node < 65536, "a node outside its job");
  expect(options.join_timeout.count() > 0 && options.grace_period.count() >= 0 && options.last_call.count() >= 0 &&
             options.link_patience.count() > 0,
         "a wait that ends before it begins");
  expect(options.max_restarts >= 0 && options.replacements >= 0, "fewer than no restarts");
  expect(options.logged < 4 && (options.hidden & ~options.logged) == 0, "a stream that goes nowhere");
  if (options.hosts.empty()) {
    expect(options.local_size >= 1 && options.local_size <= 65536, "no ranks, or too many");
    expect(options.shares.size() == static_cast<std::size_t>(options.local_size), "a rank without its share of cores");
    expect(options.nodes == 1 || !options.master_address.empty(), "nodes that cannot meet");
  } else {
    expect(!options.ssh.empty() && !options.master_address.empty(), "hosts that nobody can reach");
  }
}

}  // namespace

void run_command_line(Bytes input) {
  static CommandLine reader;  // which is quick where another was read before
  static unsigned read = 0;
  const auto words = words_in(as_text(input));
  std::visit([](const auto& what) { check(what); }, reader.parse(words));
  const auto is_as_alone = [&] { return same(reader.parse(words), CommandLine().parse(words)); };
  if (++read % kOneIn == 0)  // twice: some jobs have the time as a name
    expect(is_as_alone() || is_as_alone(), "something of the lines before is left");
}

std::vector<std::string> command_line_seeds() {
  std::vector<std::string> seeds;
  for (const std::string_view line :
       {"-n 4 a.out x", "--nproc-per-node=2 --nnodes=2 --node-rank 1 --master-addr=h --no-secret -- a.py",
        "--hosts a:2,u@b:cpu --ssh ssh --color never --pty=always a b", "--nnodes 1:4 --rdzv-endpoint [::1]:4 --x y",
        "--standalone --max-restarts 3 --rdzv-conf join_timeout=4,last_call_timeout=1 --explain -m a",
        "--log-dir d --redirects 1 --tee 3 --local-ranks-filter 0,1 --bind core --failure-dir none a", "--help",
        "--version", "--print-completion bash", "--print-page man", "--new-secret f",
        "--replace 2 --watch --grace-period 0.5 --join-timeout 1e3 --link-patience 4 --signals-to-handle SIGTERM a",
        "--hosts a,b --encrypt --gpus-per-rank 2 --interface e --port-range 1-2 --pass-local-rank=r --prefix none a"}) {
    std::string seed(line);
    std::ranges::replace(seed, ' ', '\0');
    seeds.push_back(seed);
  }
  return seeds;
}

}  // namespace rondo::fuzz
