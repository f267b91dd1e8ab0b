// SPDX-License-Identifier: Apache-2.0
// The table of flags: what is parsed, what is written about it, and what torchrun says of itself.
#include "tools/rondorun/flags.hpp"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

using namespace rondo::launcher;
using namespace rondo::test;

std::string slurp(const std::string& path) {
  std::ifstream in(std::string(RONDO_SOURCE_DIR) + "/" + path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_of_torchrun(const Flag& row) { return row.honoured != Honoured::own; }

}  // namespace

TEST_CASE("the pages of the flags are what the table makes of them") {
  INFO("write them with: rondorun --print-page torchrun, --print-page man, --print-completion bash");
  CHECK(slurp("docs/torchrun.md") == torchrun_page());
  CHECK(slurp("docs/rondorun.1") == man_page());
  CHECK(slurp("tools/rondorun/completion.bash") == bash_completion());
  CHECK(run(rondorun({"--print-page", "man"})).out == man_page());
  CHECK(run(rondorun({"--print-page", "torchrun"})).out == torchrun_page());
  CHECK(run(rondorun({"--print-completion=bash"})).out == bash_completion());
}

TEST_CASE("every flag is parsed, in both spellings, and is in the help, the manual and the completion unless refused") {
  const TemporaryFolder folder;  // some of the values are files that are made
  const std::string help = run(rondorun({"--help"})).out, manual = man_page(), completion = bash_completion();
  for (const Flag& row : flags()) {
    const std::string name(row.name);
    CAPTURE(name);
    const bool refused = row.honoured == Honoured::refused;
    CHECK((help.find("--" + name) != std::string::npos) == !refused);
    std::string escaped;
    for (const char letter : "--" + name) escaped += letter == '-' ? "\\-" : std::string(1, letter);
    CHECK(manual.find(escaped) != std::string::npos);
    CHECK((completion.find("--" + name) != std::string::npos) == !refused);
    CHECK(row.why.empty() != (row.honoured == Honoured::different || refused));
    for (const std::string& spelling : {name, std::regex_replace(name, std::regex("-"), "_")}) {
      auto words = std::vector<std::string>{"--" + spelling};
      if (!row.value.empty()) words.push_back(folder.file("value"));
      words.emplace_back("true");
      const auto ended = run(rondorun(words));
      CHECK(ended.err.find("unknown flag") == std::string::npos);
      if (refused) CHECK(ended.err == "rondorun: --" + name + " is not supported: " + std::string(row.why) + "\n");
    }
  }
}

TEST_CASE("what a command line brings is shown without what a terminal obeys") {
  const std::string odd = "\033[31m\r\a";
  const std::string shown = "\\x1b[31m\\x0d\\x07";
  using Line = std::vector<std::string>;
  const std::vector<Line> lines{rondorun({"--" + odd, "true"}),
                                rondorun({"--prefix", odd, "true"}),
                                rondorun({"--max-restarts", odd, "true"}),
                                rondorun({"--grace-period", odd, "true"}),
                                rondorun({"--hosts", odd, "true"}),
                                rondorun({"--secret-file", odd, "--nnodes", "2", "--master-addr", "127.0.0.1", "true"}),
                                rondorun({"./" + odd}),
                                rondorun({"--rdzv-id", odd, "--explain", "true"}),
                                Line{tool("rondo"), "explain", odd},
                                Line{tool("rondo-plan"), "--" + odd},
                                Line{tool("rondo-plan"), "--collective", odd},
                                Line{tool("rondo-rendezvous"), "--" + odd},
                                Line{tool("rondo-rendezvous"), "--secret-file", odd},
                                Line{tool("rondo-tune"), "--only", odd},
                                Line{tool("all_reduce_perf"), "--" + odd},
                                Line{tool("all_reduce_perf"), "--datatype", odd},
                                Line{tool("fashion_mnist"), "--" + odd},
                                Line{tool("fashion_mnist"), "--data", odd}};
  for (const Line& line : lines) {
    const auto ended = run(line);
    const std::string said = ended.out + ended.err;
    INFO(line[0] << " " << line[1] << ": " << said);
    CHECK(said.find(shown) != std::string::npos);
    CHECK(said.find_first_of("\033\r\a") == std::string::npos);
  }
}

TEST_CASE("torchrun's variables stand for its flags, which come before them") {
  const auto with = [](const std::vector<std::string>& variables, const std::vector<std::string>& words) {
    return run(rondorun(words), {.environment = variables});
  };
  CHECK(with({"PET_NPROC_PER_NODE=2", "PET_ROLE=worker"}, {"sh", "-c", "echo $ROLE_NAME $WORLD_SIZE"})
            .out.find("[1] worker 2\n") != std::string::npos);
  CHECK(with({"PET_NPROC_PER_NODE=2"}, {"-n", "1", "sh", "-c", "echo $WORLD_SIZE"}).out == "[0] 1\n");
  CHECK(with({"PET_NO_PYTHON=0", "PET_STANDALONE=1"}, {"echo", "x"}).out == "[0] x\n");
  CHECK(with({"PET_VIRTUAL_LOCAL_RANK=1"}, {"true"}).code == 2);
  CHECK(with({"PET_RDZV_BACKEND=etcd"}, {"true"}).err.find("--rdzv-backend etcd") != std::string::npos);
  CHECK(with({"PET_NNODES=2", "PET_NODE_RANK=0"}, {"true"}).err.find("--master-addr") != std::string::npos);
}

TEST_CASE("what torchrun takes on one node") {
  const std::vector<std::vector<std::string>> lines{
      {"--standalone", "--rdzv-endpoint", "localhost:0"},
      {"--rdzv_backend=c10d", "--rdzv-endpoint=localhost:0"},
      {"--nnodes=1:1", "--rdzv-conf", "join_timeout=60,last_call_timeout=5"},
      {"--nnodes", "3", "--nnodes", "1"},
      {"--signals-to-handle", "SIGTERM,SIGUSR1"},
      {"--master-addr", "[::1]", "--master_port=0"},
      {"--shutdown_timeout", "3", "--monitor_interval=5"}};
  for (auto words : lines) {
    words.insert(words.end(), {"echo", "x"});
    const auto ended = run(rondorun(words));
    CAPTURE(words.front(), ended.err);
    CHECK(ended.out == "[0] x\n");
  }
  CHECK(run(rondorun({"--link-patience", "2.5", "sh", "-c", "echo $RONDO_LINK_PATIENCE_MS"})).out == "[0] 2500\n");
  CHECK(run(rondorun({"true"}), {.environment = {"RONDO_LINK_PATIENCE_MS=9"}}).err.find("RONDO_LINK_PATIENCE_MS") !=
        std::string::npos);
  for (const auto& [words, sentence] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--rdzv-conf", "join_timeout=3,is_host=1", "true"}, "--rdzv-conf is_host=1 is not"},
           {{"--signals-to-handle", "SIGTERM,SIGALRM", "true"}, "--signals-to-handle SIGALRM is not supported"},
           {{"--shutdown-timeout", "3", "--grace-period", "3", "true"}, "are one"},
           {{"--nnodes", "2", "--rdzv-endpoint", "h:0", "--no-secret", "true"}, "--master-port 0: several nodes"},
           {{"--prefix", "host", "true"}, "--prefix must be rank or none, not 'host'"},
           {{"--bind", "cor", "true"}, "--bind must be none, core or numa, not 'cor'"},
           {{"--grace-period", "-1", "true"}, "--grace-period must be seconds from 0 to 1e7, not -1"},
           {{"--link-patience", "1", "true"}, "--link-patience must be seconds from 1.5 to 600, not 1"},
           {{"--print-completion", "zsh"}, "--print-completion must be bash, not 'zsh'"}}) {
    const auto ended = run(rondorun(words));
    CAPTURE(ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.err.find(sentence) != std::string::npos);
  }
}

TEST_CASE("bash completes flags, and what follows the program as it does files") {
  const auto complete = [](const std::string& line) {
    return run({"bash", "-c",
                "source \"$0\"; COMP_WORDS=(" + line +
                    "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); compopt() { echo \"compopt $*\"; }; _rondorun; "
                    "printf '%s\\n' \"${COMPREPLY[@]}\"",
                std::string(RONDO_SOURCE_DIR) + "/tools/rondorun/completion.bash"})
        .out;
  };
  CHECK(complete("rondorun --nproc") == "--nproc-per-node\n");
  CHECK(complete("rondorun -n 4 --standalone --bin") == "--bind\n");
  CHECK(complete("rondorun -n 4 python3 --nproc") == "compopt -o default\n\n");
}

TEST_CASE("torchrun's own help names the same flags") {
  const auto torchrun = run({"python3", "-m", "torch.distributed.run", "--help"});
  if (torchrun.out.find("--nproc-per-node") == std::string::npos) {
    WARN("no torchrun that is new enough is here: its flags are not compared");
    return;
  }
  std::set<std::string> theirs, ours;
  const std::regex an_option("\n  (-[^\n]*)"), name("(?:^|[ \\[|])--([a-z][a-z-]+)");
  const std::string options = torchrun.out.substr(torchrun.out.find("\noptions:"));
  for (auto at = std::sregex_iterator(options.begin(), options.end(), an_option); at != std::sregex_iterator(); ++at) {
    const std::string line = (*at)[1];
    std::smatch found;
    if (std::regex_search(line, found, name)) theirs.insert(found[1]);
  }
  for (const Flag& row : flags())
    if (is_of_torchrun(row)) ours.insert(std::string(row.name));
  for (const auto& flag : theirs) {
    INFO("torchrun has --" << flag);
    CHECK(ours.contains(flag));
  }
  if (!theirs.contains("print-completion")) return;  // an older one, which lacks some
  for (const auto& flag : ours) {
    INFO("this torchrun does not have --" << flag << ", which is a row of ours");
    CHECK(theirs.contains(flag));
  }
}
