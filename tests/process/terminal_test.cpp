// SPDX-License-Identifier: Apache-2.0
// rondorun at a terminal: colours, and the keys that send signals.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A program whose controlling terminal, and all three streams, is a pseudo-terminal of ours.
class AtTerminal {
 public:
  explicit AtTerminal(const std::vector<std::string>& command)
      : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (!master_ || ::grantpt(master_.get()) != 0 || ::unlockpt(master_.get()) != 0)
      throw std::runtime_error("cannot open a pseudo-terminal");
    std::vector<char*> argv;
    for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const std::string name = ::ptsname(master_.get());
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setsid();
    const int terminal = ::open(name.c_str(), O_RDWR);
    ::ioctl(terminal, TIOCSCTTY, 0);
    for (int fd = 0; fd < 3; ++fd) ::dup2(terminal, fd);
    ::execvp(argv[0], argv.data());
    ::_exit(125);
  }
  ~AtTerminal() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void type(char key) const { REQUIRE(::write(master_.get(), &key, 1) == 1); }
  // All that was shown until `text` came `count` times, or until the end of the program when it is empty.
  std::string read_until(const std::string& text, std::size_t count = 1) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (text.empty() || occurrences(shown_, text) < count) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd poll{.fd = master_.get(), .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || ::poll(&poll, 1, static_cast<int>(left.count())) != 1)
        throw std::runtime_error("the terminal did not show " + text + " but " + shown_);
      std::array<char, 4096> buffer;
      const ssize_t got = ::read(master_.get(), buffer.data(), buffer.size());
      if (got <= 0) break;  // EIO: nobody has the terminal open any more
      shown_.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return shown_;
  }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  rondo::Fd master_;
  pid_t pid_ = -1;
  std::string shown_;
};

}  // namespace

TEST_CASE("the prefix is coloured on a terminal") {
  AtTerminal job(rondorun({"echo", "hello"}));
  CHECK(job.read_until("").find("m[0]\033[0m hello") != std::string::npos);
  CHECK(job.wait() == 0);
}

TEST_CASE("Ctrl-C reaches each rank once, and twice Ctrl-C kills") {
  AtTerminal job(rondorun({"--nproc-per-node", "2", "--", "sh", "-c",
                           "trap 'echo got INT' INT; echo ready; while :; do sleep 0.05; done"}));
  job.read_until("ready\r\n", 2);
  job.type('\003');
  job.read_until("got INT\r\n", 2);
  job.type('\003');
  const auto shown = job.read_until("");
  CHECK(occurrences(shown, "got INT\r\n") == 2);
  CHECK(job.wait() == 128 + SIGINT);
}

TEST_CASE("local rank 0 can read from the terminal") {
  AtTerminal job(rondorun({"--nproc-per-node", "2", "--", "sh", "-c", "echo ready; read line; echo \"got <$line>\""}));
  job.read_until("ready");
  for (const char key : {'h', 'i', '\n'}) job.type(key);
  const auto shown = job.read_until("");
  CHECK(shown.find("got <hi>") != std::string::npos);
  job.wait();
}
