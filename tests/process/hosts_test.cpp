// SPDX-License-Identifier: Apache-2.0
// --hosts and --hostfile, with a stand-in for ssh that runs everything on this host.
#include "tools/rondorun/hosts.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/process/running.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;
using rondo::launcher::FarHost;
using Texts = std::vector<std::string>;

Texts over_ssh(Texts flags, const Texts& command) {
  flags.insert(flags.begin(), {"--ssh", RONDO_SSH_STAND_IN});
  flags.emplace_back("--");
  flags.insert(flags.end(), command.begin(), command.end());
  return rondorun(flags);
}

const Texts kWhoAmI{"sh", "-c",
                    "echo I am $RANK/$WORLD_SIZE, $LOCAL_RANK/$LOCAL_WORLD_SIZE of $GROUP_RANK/$GROUP_WORLD_SIZE"};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string written(const std::vector<FarHost>& hosts) {
  std::string text;
  for (const FarHost& host : hosts) text += host.login + "=" + host.ranks + " ";
  return text;
}

std::string refusal(const std::string& list) {
  try {
    return written(rondo::launcher::hosts_of_list(list, "1"));
  } catch (const std::exception& error) {
    return error.what();
  }
}

struct File {
  std::filesystem::path path;
  explicit File(const std::string& text)
      : path(std::filesystem::temp_directory_path() / ("rondo-hostfile-" + std::to_string(::getpid()))) {
    std::ofstream(path) << text;
  }
  ~File() { std::filesystem::remove(path); }
};

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("lists of hosts: numbers, users, IPv6 in brackets; a host that is named again has the ranks of both") {
  using rondo::launcher::hosts_of_list;
  CHECK(written(hosts_of_list("a:4,b", "2")) == "a=4 b=2 ");
  CHECK(written(hosts_of_list("me@a:4,[fd00::1]:3,me@[fd00::2]", "auto")) == "me@a=4 fd00::1=3 me@fd00::2=auto ");
  CHECK(written(hosts_of_list("a:4,b:1,a:2,b", "3")) == "a=6 b=4 ");
  CHECK(written(hosts_of_list("me@home@a:4,me@home@[fd00::1]:3", "2")) == "me@home@a=4 me@home@fd00::1=3 ");
  CHECK(hosts_of_list("me@home@a:4", "2").front().name() == "a");  // to ssh, too
  CHECK(has(refusal("fd00::1:4"), "--hosts: 'fd00::1:4' has several colons: an IPv6 address stands in brackets"));
  CHECK(has(refusal("a:0"), "'a:0' does not say a number of ranks"));
  CHECK(has(refusal("a:,b"), "'a:' does not say a number of ranks"));
  CHECK(has(refusal("a:auto,a"), "is named twice"));
  for (const char* odd :
       {"-oProxyCommand=x", "me@-x", "a b", "", "a,", ",a", "[fd00::1", "[fd00::1]4", "a]:1", "@:1"}) {
    INFO(odd);
    CHECK(refusal(odd).starts_with("--hosts: '"));
  }
}

// Each is looked up among those before it: by a search, all processors of today would take seconds for the last list.
TEST_CASE("twice as many hosts take about twice the time") {
  const auto time_of = [](int count) {
    std::string list = "a";
    for (int i = 0; i < count; ++i) list += fmt::format(",host-of-a-long-name-{}", i);
    timespec begin{}, end{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    CHECK(rondo::launcher::hosts_of_list(list, "1").size() == static_cast<std::size_t>(count) + 1);
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
  };
  time_of(1000);
  const double few = time_of(4000), many = time_of(64000);
  INFO(few << " s, and then " << many << " s");
  CHECK(many < 128 * few);  // as the number 16, and what the caches take; as its square 256 and more
}

TEST_CASE("files of hosts, as Open MPI, PBS and Grid Engine write them") {
  using rondo::launcher::hosts_of_file;
  const File file("# two\na slots=4 max_slots=8\n\nb:2  # here\nc 3 all.q@c UNDEFINED\nd\nd\n[fd00::1]\n");
  CHECK(written(hosts_of_file(file.path, "1")) == "a=4 b=2 c=3 d=2 fd00::1=1 ");
  const File wrong("a\nb slots=many\n");
  CHECK_THROWS_WITH(hosts_of_file(wrong.path, "1"), Catch::Contains(", line 2: 'b slots=many' does not say a number"));
  const File list("a,b\n");  // once a host of that name
  CHECK_THROWS_WITH(hosts_of_file(list.path, "1"), Catch::Contains(", line 1: 'a,b' is no host"));
  CHECK_THROWS_WITH(hosts_of_file("/nowhere/hosts", "1"), Catch::Contains("/nowhere/hosts: No such file"));
  const File nobody("# nobody\n");
  CHECK_THROWS_WITH(hosts_of_file(nobody.path, "1"), Catch::Contains("it names no host"));
}

TEST_CASE("one world on all hosts, in the same folder, from one place") {
  const File file("127.0.0.1 slots=2\n127.0.0.2\n");
  for (const Texts& flags : {Texts{"--hosts", "127.0.0.1:2,127.0.0.2:1"}, Texts{"--hostfile", file.path}}) {
    const auto ended = run(over_ssh(flags, kWhoAmI));
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(has(ended.out, "[0] I am 0/3, 0/2 of 0/2\n"));
    CHECK(has(ended.out, "[1] I am 1/3, 1/2 of 0/2\n"));
    CHECK(has(ended.out, "[2] I am 2/3, 0/1 of 1/2\n"));
    CHECK(!has(ended.err, "far-side"));
  }
  const auto folder = std::filesystem::temp_directory_path() / ("rondo hosts' " + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "prog") << "#!/bin/sh\necho \"in $(pwd) with $1, $RONDO_TUNING_NOTE\"\n";
  std::filesystem::permissions(folder / "prog", std::filesystem::perms::owner_all);
  auto words = Texts{"sh", "-c", "cd \"$1\" && shift && exec \"$@\"", "sh", folder};
  const auto line = over_ssh({"--hosts", "localhost"}, {"./prog", "it's a \"$HOME\""});
  words.insert(words.end(), line.begin(), line.end());
  const auto ended = run(words, {.environment = {"RONDO_TUNING_NOTE=a setting"}});
  std::filesystem::remove_all(folder);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out == "[0] in " + folder.string() + " with it's a \"$HOME\", a setting\n");
}

TEST_CASE("the verdict is one sentence and one exit code, 255 too, as on one node") {
  const std::string code = GENERATE("9", "255");
  const auto ended = run(over_ssh({"--hosts", "127.0.0.1,127.0.0.2"},
                                  {"sh", "-c", "test $RANK = 1 && exit " + code + "; echo here; exec sleep 60"}));
  INFO(ended.err);
  CHECK(std::to_string(ended.code) == code);
  CHECK(ended.err.starts_with("rondorun: rank 1 (pid "));
  CHECK(has(ended.err, "exited with code " + code + " on host "));
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK(ended.seconds < 10);
}

TEST_CASE("what is wrong with a host is one sentence that names it") {
  const auto sentence_of = [](const std::string& host) {
    const auto ended = run(over_ssh({"--hosts", "127.0.0.1," + host, "--master-addr", "127.0.0.1"}, {"sleep", "60"}));
    CHECK(ended.code == 1);
    CHECK(ended.seconds < 10);
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    return ended.err;
  };
  CHECK(sentence_of("nowhere") == "rondorun: cannot reach host nowhere: " RONDO_SSH_STAND_IN
                                  " exited with code 255: ssh: connect to host nowhere port 22: No route to host\n");
  const auto bare = sentence_of("me@bare");
  CHECK(bare.starts_with("rondorun: host bare cannot run rondorun at /"));
  CHECK(has(bare, "no-rondorun: not found; install it there at the same path\n"));
  const auto old = sentence_of("old");
  CHECK(old.starts_with("rondorun: host old has rondorun 0.0.1 at /"));
  CHECK(has(old, ": install the same on every host\n"));
  CHECK(sentence_of("odd") ==
        "rondorun: rondorun on host odd says 'soon', which is no exit code: install the same on every host\n");
  const auto no_ssh = run(rondorun({"--ssh", "/nowhere/ssh -x", "--hosts", "a", "true"}));
  CHECK(no_ssh.code == 127);
  CHECK(no_ssh.err == "rondorun: cannot run /nowhere/ssh: No such file or directory\n");
}

TEST_CASE("a folder or a program that a host lacks is said once") {
  const Texts hosts{"--hosts", "127.0.0.1,127.0.0.2"};
  const auto missing = run(over_ssh(hosts, {"./no-such-program"}));
  INFO(missing.err);
  CHECK(missing.code == 127);
  CHECK(has(missing.err, "cannot start './no-such-program' on host "));
  CHECK(std::count(missing.err.begin(), missing.err.end(), '\n') == 1);
}

TEST_CASE("values that no host would take are refused before any host is asked") {
  const std::vector<std::pair<Texts, std::string>> lines{
      {{"--bind", "cor"}, "--bind must be none, core or numa, not 'cor'"},
      {{"--numa-binding", "core"}, "--numa-binding must be node, socket, exclusive or core-complex, not 'core'"},
      {{"--nproc-per-node", "many"}, "--nproc-per-node must be a whole number from 1 to 65536, not 'many'"},
      {{"--no-python", "--module"}, "--no-python cannot be had with -m or --run-path"}};
  for (const auto& [flags, sentence] : lines) {
    Texts words{"--ssh", "/nowhere/ssh", "--hosts", "a"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.emplace_back("true");
    const auto wrong = run(rondorun(words));
    CHECK(wrong.code == 2);
    CHECK(wrong.err == "rondorun: " + sentence + "\n");
  }
}

TEST_CASE("the secret is on no command line and in no environment, also where it comes from a file") {
  const SecretFile secret("hosts");
  std::string digits = slurp(secret.path);
  digits.resize(64);
  Running job(over_ssh({"--hosts", "127.0.0.1,127.0.0.2", "--secret-file", secret.path},
                       {"sh", "-c", "echo pid $$; exec sleep 60"}));
  const auto pids = job.lines("pid ", 2);
  std::size_t looked_at = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    ++looked_at;
    CHECK(!has(slurp(entry.path() / "cmdline"), digits));
    CHECK(!has(slurp(entry.path() / "environ"), digits));
  }
  CHECK(looked_at > 5);
  CHECK(has(slurp("/proc/" + pids[0] + "/environ"), "RONDO_SECRET_FD="));
  job.signal(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
}

TEST_CASE("signals reach the ranks of all hosts, and a first one ends a job whose hosts are not there yet") {
  Running job(over_ssh({"--hosts", "127.0.0.1,127.0.0.2"},
                       {"sh", "-c", "trap 'echo got it' USR1; echo ready; while :; do sleep 0.02; done"}));
  job.lines("ready", 2);
  job.signal(SIGUSR1);
  job.lines("got it", 2);
  job.signal(SIGINT);
  const auto ended = job.wait();
  INFO(ended.err);
  CHECK(ended.code == 128 + SIGINT);
  CHECK(has(ended.err, "rondorun: stopped by signal 2 (Interrupt)\n"));
  Running waiting(
      over_ssh({"--hosts", "127.0.0.1,silent", "--master-addr", "127.0.0.1", "--grace-period", "0"}, {"true"}));
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  const auto children =
      "/proc/" + std::to_string(waiting.pid()) + "/task/" + std::to_string(waiting.pid()) + "/children";
  while (slurp(children).empty() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  waiting.signal(SIGTERM);
  const auto gone = waiting.wait();
  INFO(gone.err);
  CHECK(gone.code == 128 + SIGTERM);
  CHECK(gone.seconds < 5);
}

TEST_CASE("SIGKILL of the launcher here, or of one host's connection, leaves nothing and names the host") {
  const bool launcher = GENERATE(true, false);
  Running job(over_ssh({"--hosts", "127.0.0.1,127.0.0.2"},
                       {"sh", "-c",
                        "[ $RANK = 1 ] && p=$(ps -o ppid= -p $(ps -o ppid= -p $PPID)) && echo far $p; "
                        "echo pid $$; exec sleep 60"}));
  const Watched ranks(job.lines("pid ", 2));
  const auto far = job.lines("far ", 1).front();
  ::kill(launcher ? job.pid() : static_cast<pid_t>(std::stol(far)), SIGKILL);
  CHECK(ranks.all_gone_within(5s));
  const auto ended = job.wait();
  INFO(ended.err);
  CHECK(ended.code != 0);
  if (!launcher) CHECK(has(ended.err, "rondorun: rondorun on host 127.0.0.2 or the connection to it is gone: "));
}

TEST_CASE("ranks over ssh are started again on all hosts, which is said once") {
  const auto ended =
      run(over_ssh({"--hosts", "127.0.0.1:1,127.0.0.2:2", "--max-restarts", "2"},
                   {"sh", "-c",
                    "echo run $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; "
                    "[ $RANK = $TORCHELASTIC_RESTART_COUNT ] && exit 3; exec sleep 60"}));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  for (const char* line : {"[0] run 2\n", "[1] run 2\n", "[2] run 2\n"}) CHECK(has(ended.out, line));
  for (const char* line :
       {"rondorun: starting again: restart 1 of 2\n", "rondorun: starting again: restart 2 of 2\n"}) {
    const auto first = ended.err.find(line);
    REQUIRE(first != std::string::npos);
    CHECK(ended.err.find(line, first + 1) == std::string::npos);
  }
}

TEST_CASE("flags that say what --hosts says, and a first host that others cannot reach, are refused") {
  const auto refused = [](Texts flags) {
    flags.emplace_back("true");
    const auto ended = run(rondorun(flags));
    CHECK(ended.code == 2);
    return ended.err;
  };
  CHECK(refused({"--hosts", "a", "--nnodes", "2"}) ==
        "rondorun: --nnodes cannot be had with --hosts, which says it: leave it out\n");
  CHECK(has(refused({"--hosts", "a", "--hostfile", "x"}), "--hosts and --hostfile are one"));
  CHECK(has(refused({"--hosts", "localhost,b"}), "--hosts begins with localhost, which is no name of it for b"));
  CHECK(has(refused({"--hosts", "::1:2"}), "in brackets"));
}
