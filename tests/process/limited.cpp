// SPDX-License-Identifier: Apache-2.0
// limited LIMIT VALUE [COMMAND...]: sets a limit that a system may set, then runs COMMAND; without one it is a rank
// that joins and reduces. What deny:NAME names is a group of system calls that end with the error VALUE.
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "limited: %s: %s\n", what.c_str(), std::strerror(errno));
  ::_exit(77);
}
void need(bool done, const std::string& what) {
  if (!done) give_up(what);
}

void set_limit(__rlimit_resource resource, const std::string& value, const std::string& name) {
  const auto number = static_cast<rlim_t>(std::stoull(value));
  const rlimit both{number, number};
  need(::setrlimit(resource, &both) == 0, name);
}

// A call of the group; `mask`: only where the first argument has these bits (of a socket: is this family).
struct SystemCall {
  unsigned number, mask;
};
const std::map<std::string, std::vector<SystemCall>>& groups() {
  static const std::map<std::string, std::vector<SystemCall>> table = {
      {"memfd", {{SYS_memfd_create, 0}}},
      {"copies", {{SYS_process_vm_readv, 0}, {SYS_process_vm_writev, 0}}},
      {"pidfd", {{SYS_pidfd_open, 0}}},
      {"membarrier", {{SYS_membarrier, 0}}},
      {"rseq", {{SYS_rseq, 0}}},
      {"eventfd", {{SYS_eventfd2, 0}}},
      {"getrandom", {{SYS_getrandom, 0}}},
      {"affinity", {{SYS_sched_getaffinity, 0}, {SYS_sched_setaffinity, 0}}},
      {"threads", {{SYS_clone, CLONE_THREAD}, {SYS_clone3, 0}}},
      {"epoll", {{SYS_epoll_create1, 0}}},
      {"timerfd", {{SYS_timerfd_create, 0}}},
      {"unix", {{SYS_socket, AF_UNIX}}},
  };
  return table;
}

void deny(const std::string& group, unsigned error) {
  std::vector<sock_filter> code;
  const auto load = [&](unsigned offset) { code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); };
  const unsigned refuse = SECCOMP_RET_ERRNO | error;
  for (const SystemCall& call : groups().at(group)) {
    load(offsetof(seccomp_data, nr));
    code.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.number, 0, static_cast<unsigned char>(call.mask != 0 ? 3 : 1)));
    if (call.mask != 0) {
      load(offsetof(seccomp_data, args[0]));
      const unsigned short test = call.number == SYS_socket ? BPF_JEQ : BPF_JSET;
      code.push_back(BPF_JUMP(static_cast<unsigned short>(BPF_JMP | BPF_K | test), call.mask, 0, 1));
    }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, call.number == SYS_clone3 ? SECCOMP_RET_ERRNO | ENOSYS : refuse));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  need(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  need(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

void cover(const char* folder, const char* options) {
  need(::unshare(CLONE_NEWNS) == 0, "unshare");
  need(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private mounts");
  need(::mount("none", folder, "tmpfs", MS_NOEXEC, options) == 0, folder);
}

void limit(const std::string& name, const std::string& value) {
  if (name == "nofile") return set_limit(RLIMIT_NOFILE, value, name);
  if (name == "softfile") {
    rlimit both{};
    ::getrlimit(RLIMIT_NOFILE, &both);
    both.rlim_cur = static_cast<rlim_t>(std::stoull(value));
    return need(::setrlimit(RLIMIT_NOFILE, &both) == 0, name);
  }
  if (name == "memlock") return set_limit(RLIMIT_MEMLOCK, value, name);
  if (name == "as") return set_limit(RLIMIT_AS, value, name);
  if (name == "fsize") return set_limit(RLIMIT_FSIZE, value, name);
  if (name == "stack") return set_limit(RLIMIT_STACK, value, name);
  if (name == "data") return set_limit(RLIMIT_DATA, value, name);
  if (name == "dumpable") return need(::prctl(PR_SET_DUMPABLE, std::stoi(value), 0, 0, 0) == 0, name);
  if (name == "proc") return cover("/proc", "");
  if (name == "shm") return cover("/dev/shm", "size=4k");
  if (name.starts_with("deny:"))
    return deny(name.substr(5), value == "EPERM" ? EPERM : value == "EAGAIN" ? EAGAIN : ENOSYS);
  if (name != "none") give_up("unknown limit " + name);
}

int be_rank() {
  rondo::Options options;
  options.join_timeout = std::chrono::seconds(20);
  options.timeout = std::chrono::seconds(20);
  auto communicator = rondo::Communicator::from_environment(options);
  for (const std::size_t count : {1UL, 1000UL, 3'000'001UL}) {
    std::vector<float> data(count, static_cast<float>(communicator.rank() + 1));
    communicator.all_reduce(data, rondo::ReduceOp::sum);
    const int n = communicator.world_size();
    for (const float value : data) {
      if (value != static_cast<float>(n * (n + 1) / 2)) return 3;
    }
  }
  std::puts("sums are right");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  limit(argv[1], argv[2]);
  if (argc > 3) {
    ::execv(argv[3], argv + 3);
    give_up("exec");
  }
  try {
    return be_rank();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
}
