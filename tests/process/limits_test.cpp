// SPDX-License-Identifier: Apache-2.0
// Limits that a system may set, of the ranks and of who starts them: a job works, or says by one sentence a rank which
// limit it is and what to do. Never a hang, a flood of lines, or another transport in silence.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iostream>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using Words = std::vector<std::string>;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RONDO_SANITIZED 1
#endif
#endif
#ifdef RONDO_SANITIZED
constexpr bool kSanitized = true;  // needs addresses and /proc for itself
#else
constexpr bool kSanitized = false;
#endif

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

struct Row {
  Words limit;  // what `limited` takes
  bool works;
  const char* said = "";         // once a rank where it fails
  const char* said_of_shm = "";  // once, where it works, but not by shared memory
  bool plain_alone = false;      // not with a sanitizer, which needs what is denied
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"none", "0"}, true},
      {{"memlock", "0"}, true},
      {{"dumpable", "0"}, true},
      {{"proc", "0"}, true, "", "", true},
      {{"shm", "0"}, true},
      {{"softfile", "20"}, true},
      {{"nofile", "64"}, true},
      {{"stack", "65536", tool("limited"), "none", "0"}, true, "", "", true},
      {{"fsize", "0"}, true, "", "raise the limit of a file's size (ulimit -f)"},
      {{"deny:memfd", "EPERM"}, true, "", "(memfd_create): Operation not permitted"},
      {{"deny:memfd", "ENOSYS"}, true, "", "(memfd_create): Function not implemented"},
      {{"deny:copies", "EPERM"}, true},
      {{"deny:pidfd", "ENOSYS"}, true},
      {{"deny:membarrier", "EPERM"}, true},
      {{"deny:membarrier", "ENOSYS"}, true},
      {{"deny:rseq", "EPERM", tool("limited"), "none", "0"}, true},
      {{"deny:affinity", "EPERM"}, true, "", "", true},
      {{"deny:eventfd", "EPERM"}, false, "eventfd"},
      {{"deny:epoll", "EPERM"}, false, "epoll"},
      {{"deny:unix", "EPERM"}, false, "a Unix socket: Operation not permitted"},
      {{"deny:threads", "EAGAIN"}, false, "the limits of processes (ulimit -u", "", true},
      {{"as", "30000000"}, false, "(ulimit -v", "", true},
      {{"nofile", "8"}, false, "this process may have 8"},
      {{"nofile", "12"}, false, "this process may have 12"},
  };
  return table;
}

// Every rank ended, and what it said is what the row expects.
void check_row(const Row& row, int ranks, bool by_shm, int code, const std::string& all) {
  const auto n = static_cast<std::size_t>(ranks);
  if (all.find("limited: ") != std::string::npos) {
    std::cout << "skipped: " << row.limit.front() << " cannot be set here\n";
    return;
  }
  CHECK((code == 0) == row.works);
  CHECK(count(all, "sums are right") == (row.works ? n : 0));
  CHECK(count(all, "failed: ") <= n);
  if (!row.works) {
    CHECK(count(all, row.said) >= 1);
    CHECK(count(all, "\n") <= 2 * n + 2);
    return;
  }
  const std::string warned = by_shm ? row.said_of_shm : "";
  CHECK(count(all, "rondo warning") == (warned.empty() ? 0 : 1));
  if (!warned.empty()) {
    CHECK(count(all, warned) == 1);
    CHECK(count(all, "cannot share memory and use tcp") == 1);
  }
}

}  // namespace

TEST_CASE("limits of the ranks that rondorun starts") {
  for (const std::string transport : {"", "tcp"}) {
    for (const Row& row : rows()) {
      if (row.plain_alone && kSanitized) continue;
      const int ranks = row.works ? 3 : 2;
      const auto ended = run(rondorun(Words{"--nproc-per-node", std::to_string(ranks), tool("limited")} + row.limit),
                             {.environment = {"RONDO_TRANSPORT=" + transport}});
      INFO(row.limit[0] << " " << row.limit[1] << " '" << transport << "': " << ended.out << ended.err);
      check_row(row, ranks, transport.empty(), ended.code, ended.out + ended.err);
      CHECK(ended.seconds < 15);
    }
  }
}

TEST_CASE("limits of ranks by hand") {
  const std::string job = "limits-" + std::to_string(::getpid());
  for (const Row& row : rows()) {
    if (row.plain_alone && kSanitized) continue;
    std::deque<Running> started;
    for (const std::string rank : {"0", "1"}) {
      started.emplace_back(Words{tool("limited")} + row.limit,
                           Running::How{.environment = {"RANK=" + rank, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                                        "MASTER_PORT=29500", "RONDO_JOB=" + job}});
      if (!row.works && row.limit[0] != "none") break;  // rank 0 alone: nobody waits for it
    }
    std::string all;
    int code = 0;
    for (Running& each : started) {
      const auto ended = each.wait();
      all += ended.out + ended.err;
      code = std::max(code, ended.code);
      CHECK(ended.seconds < 15);
    }
    INFO(row.limit[0] << " " << row.limit[1] << ": " << all);
    check_row(row, static_cast<int>(started.size()), true, code, all);
  }
}

TEST_CASE("one rank with any number of open files works, or it says what is missing and nobody waits for it") {
  const int limited_rank = GENERATE(0, 1, 2);
  const std::string job = "files-" + std::to_string(::getpid()) + "-" + std::to_string(limited_rank) + "-";
  int worked = 0;
  for (int files = 8; files <= 40; ++files) {
    std::deque<Running> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      const Words limit = rank == limited_rank ? Words{"nofile", std::to_string(files)} : Words{"none", "0"};
      ranks.emplace_back(
          Words{tool("limited")} + limit,
          Running::How{.environment = {"RANK=" + std::to_string(rank), "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=29500", "RONDO_JOB=" + job + std::to_string(files)}});
    }
    const auto ended = ranks[static_cast<std::size_t>(limited_rank)].wait();
    INFO(files << " at rank " << limited_rank << ": " << ended.out << ended.err);
    CHECK(ended.seconds < 5);
    if (ended.code != 0) {
      CHECK(worked == 0);
      CHECK(count(ended.err, "failed: ") == 1);
      CHECK(count(ended.err, "this process may have " + std::to_string(files)) >= 1);
    }
    worked += ended.code == 0;
    // Others that met it have lost it. Those that wait for it to appear would do so for as long as they were told.
    const bool appeared = ended.err.find("rendezvous server of 3 ranks needs") == std::string::npos;
    bool never_met = false;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == limited_rank) continue;
      Running& other = ranks[static_cast<std::size_t>(rank)];
      if (!appeared) other.signal(SIGKILL);
      const auto theirs = other.wait();
      INFO("rank " << rank << ": " << theirs.out << theirs.err);
      CHECK((theirs.code == 0) == (ended.code == 0));
      // One that started after rank 0 had given up never met it, and waits as long as it was told; so long nobody looks
      // at the ranks behind it.
      never_met = never_met || (limited_rank == 0 && theirs.err.find("it did not appear") != std::string::npos);
      CHECK((never_met || theirs.seconds < 5));
    }
  }
  CHECK(worked > 0);
}

TEST_CASE("limits of a program that spawns ranks") {
  for (const std::string transport : {"", "tcp"}) {
    for (const Row& row : rows()) {
      if (row.plain_alone && kSanitized) continue;
      const bool works = row.works && row.limit[0] != "deny:pidfd";  // the supervisor watches its ranks by them
      const auto ended = run(Words{tool("limited"), row.limit[0], row.limit[1], tool("spawner"), "3", "reduce"},
                             {.environment = {"RONDO_TRANSPORT=" + transport}});
      const std::string all = ended.out + ended.err;
      INFO(row.limit[0] << " " << row.limit[1] << " '" << transport << "': " << all);
      if (all.find("limited: ") != std::string::npos) continue;
      CHECK((ended.code == 0) == works);
      CHECK(count(all, "is done") == (works ? 3 : 0));
      if (works) CHECK(count(all, "rondo warning") == (transport.empty() && *row.said_of_shm != '\0' ? 1 : 0));
      if (!works) CHECK(count(all, row.works ? "cannot watch a child process" : row.said) >= 1);
      CHECK(ended.seconds < 15);
    }
  }
}

TEST_CASE("a program that spawns ranks works with little memory, or says that it lacks memory") {
  if (kSanitized) return;
  int lacked = 0;
  for (int megabytes = 16; megabytes <= 56; ++megabytes) {
    const auto ended =
        run({tool("limited"), "as", std::to_string(megabytes) + "000000", tool("spawner"), "3", "reduce"});
    const std::string all = ended.out + ended.err;
    INFO(megabytes << " MB: " << all);
    if (all.find("error while loading shared libraries") != std::string::npos) continue;
    CHECK(count(all, "terminate called") == 0);
    CHECK(ended.seconds < 15);
    if (ended.code == 0) continue;
    CHECK(count(all, "(ulimit -v") >= 1);
    ++lacked;
  }
  CHECK(lacked > 0);
}

TEST_CASE("shared memory that was asked for and is denied is an error that says why") {
  const auto ended = run(rondorun({"--nproc-per-node", "3", tool("limited"), "deny:memfd", "EPERM"}),
                         {.environment = {"RONDO_TRANSPORT=shm"}});
  const std::string all = ended.out + ended.err;
  INFO(all);
  CHECK(ended.code != 0);
  CHECK(count(all, "RONDO_TRANSPORT=shm, but rank 0 cannot share memory: cannot create shared memory") >= 1);
}

TEST_CASE("limits of the launcher: it says the number that it needs, once") {
  struct Launcher {
    Words limit;
    int ranks;
    const char* said;  // empty: it works
  };
  const Launcher row =
      GENERATE(Launcher{{"nofile", "16"}, 4, "rondorun with 4 ranks needs "}, Launcher{{"nofile", "64"}, 4, ""},
               Launcher{{"nofile", "64"}, 64, "rondorun with 64 ranks needs "}, Launcher{{"softfile", "16"}, 4, ""},
               Launcher{{"deny:memfd", "EPERM"}, 2, "(memfd_create): Operation not permitted"});
  const auto ended = run(Words{tool("limited")} + row.limit +
                         rondorun({"--nproc-per-node", std::to_string(row.ranks), tool("limited"), "none", "0"}));
  INFO(row.limit[0] << " " << row.limit[1] << ": " << ended.out << ended.err);
  CHECK((ended.code == 0) == (*row.said == '\0'));
  if (ended.code == 0) return;
  CHECK(count(ended.err, row.said) == 1);
  CHECK(count(ended.out + ended.err, "\n") == 1);
  CHECK(ended.seconds < 15);
}

TEST_CASE("a rank 0 that cannot take all connections says the number that it needs, at once") {
  const auto ended = run({tool("limited"), "nofile", "32"},
                         {.environment = {"RANK=0", "WORLD_SIZE=64", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
                                          "RONDO_JOB=many-" + std::to_string(::getpid())}});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 1);
  CHECK(count(ended.err, "the rendezvous server of 64 ranks needs ") == 1);
  CHECK(count(ended.err, "\n") == 1);
  CHECK(ended.seconds < 10);
}

TEST_CASE("a server of any job that runs out of descriptors ends the round, and says so in few lines") {
  constexpr int kRanks = 24;
  Running server({tool("limited"), "nofile", "20", tool("rondo-rendezvous"), "--insecure", "--port", "0"});
  const std::string place = server.lines("127.0.0.1:", 1).front();
  std::deque<Running> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(
        Words{tool("limited"), "none", "0"},
        Running::How{.environment = {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(kRanks),
                                     "RONDO_RENDEZVOUS=127.0.0.1:" + place, "RONDO_INSECURE=1", "RONDO_JOB=job"}});
  }
  std::size_t told = 0;
  for (Running& rank : ranks) {
    const auto ended = rank.wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 1);
    told += count(ended.err, "this process may have 20 open files: raise the limit (ulimit -n)");
  }
  CHECK(told > kRanks / 2);
  server.signal(SIGTERM);
  const auto ended = server.wait();
  INFO(ended.err);
  CHECK(count(ended.err, "refused a connection") <= static_cast<std::size_t>(ended.seconds) + 2);
}
