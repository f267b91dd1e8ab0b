// SPDX-License-Identifier: Apache-2.0
// --hosts over a real sshd on each of several hosts in network namespaces.
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "tests/process/host.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const char* const kSshd = "/usr/sbin/sshd";

// Hosts a (10.9.0.1), b, c; a job is started from c.
class Cluster {
 public:
  Cluster() : folder_(fs::temp_directory_path() / ("rondo-sshd-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    fs::create_directories("/run/sshd");  // which Debian's sshd wants
    for (const char* key : {"host", "user"})
      make(Words{"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key)});
    std::ofstream(path("config")) << "HostKey " << path("user") << "\nAuthorizedKeysFile " << path("user.pub")
                                  << "\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n";
    connect_all(bridge_, hosts_);
    std::string names = "127.0.0.1 localhost\n";
    for (std::size_t i = 0; i < hosts_.size(); ++i)
      names += address(i) + " " + static_cast<char>('a' + i) + "\nfd00:9::" + std::to_string(i + 1) + " six\n";
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      hosts_[i].add_address(address(i) + "/24");
      hosts_[i].add_address("fd00:9::" + std::to_string(i + 1) + "/64");
      hosts_[i].set_hosts(names);
      if (i == 2) continue;
      servers_.push_back(std::make_unique<Running>(hosts_[i].inside({kSshd, "-D", "-e", "-f", path("config")})));
      await(i);
    }
  }
  ~Cluster() {
    servers_.clear();
    fs::remove_all(folder_);
  }
  Words command(Words flags, const Words& program) const {
    const std::string ssh =
        "ssh -F none -i " + path("user") +
        " -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";
    flags = Words{"--ssh", ssh} + flags + Words{"--"} + program;
    return hosts_[2].inside(rondorun(flags));
  }
  Running start(const Words& flags, const Words& program) const { return Running(command(flags, program)); }
  // The process that a job here has for that host.
  pid_t ssh_to(const std::string& host) const {
    const auto key = path("user") + '\0', end = '\0' + host + '\0' + "/";
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::ifstream in(entry.path() / "cmdline", std::ios::binary);
      const std::string words{std::istreambuf_iterator<char>(in), {}};
      if (words.starts_with("ssh") && has(words, key) && has(words, end)) return std::stoi(entry.path().filename());
    }
    throw std::runtime_error("no ssh to " + host);
  }

 private:
  static std::string address(std::size_t i) { return "10.9.0." + std::to_string(i + 1); }
  std::string path(const std::string& name) const { return folder_ / name; }
  static void make(const Words& command) {
    const auto ended = run(command);
    if (ended.code != 0) throw std::runtime_error(command[0] + ": " + ended.err);
  }
  // sshd says on stderr, which nobody reads here, that it listens.
  void await(std::size_t i) const {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (run(hosts_[i].inside({"bash", "-c", ": >/dev/tcp/127.0.0.1/22"})).code != 0)
      if (std::chrono::steady_clock::now() > until) throw std::runtime_error("sshd does not listen");
  }
  fs::path folder_;
  Host bridge_;
  std::deque<Host> hosts_{3};
  std::deque<std::unique_ptr<Running>> servers_;
};

bool sshd_is_here() {
  if (fs::exists(kSshd) && run({"sh", "-c", "command -v ssh ssh-keygen"}).code == 0) return true;
  std::cout << "skipped: openssh-server or openssh-client is not installed\n";
  return false;
}

}  // namespace

TEST_CASE("--hosts over sshd: one world, by name and by IPv6 address, and nothing left however it ends") {
  if (!sshd_is_here() || !namespaces_possible()) return;
  const Cluster cluster;
  const auto ended = run(cluster.command({"--hosts", "a:2,[fd00:9::2]"}, {tool("reducer"), "reduce"}));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(has(ended.out, "[2] sums are right\n"));
  const auto nobody = run(cluster.command({"--hosts", "a,c"}, {"true"}));
  CHECK(nobody.code == 1);
  CHECK(
      nobody.err ==
      "rondorun: cannot reach host c: ssh exited with code 255: ssh: connect to host c port 22: Connection refused\n");
  for (const bool all : {true, false}) {  // of the launcher here are killed, or one ssh
    auto job = cluster.start({"--hosts", "a:2,b:1"}, {"sh", "-c", "echo pid $$; exec sleep 60"});
    const Watched ranks(job.lines("pid ", 3));
    all ? job.signal(SIGKILL) : void(::kill(cluster.ssh_to("b"), SIGKILL));
    CHECK(ranks.all_gone_within(5s));
    const auto killed = job.wait();
    INFO(killed.err);
    CHECK(killed.code != 0);
    if (!all) CHECK(has(killed.err, "rondorun on host b or the connection to it is gone: ssh was killed by signal 9"));
  }
}
