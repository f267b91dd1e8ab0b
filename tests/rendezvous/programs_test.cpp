// SPDX-License-Identifier: Apache-2.0
// Real processes: rondo-rendezvous alone, and ranks that find one another by environment, port or file.
#include "tests/rendezvous/programs.hpp"

#include <filesystem>

#include "rendezvous/listen.hpp"
#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

struct SecretFile {
  Secret secret = Secret::generate();
  std::filesystem::path folder = make_folder(), path = folder / "secret";
  SecretFile() { secret.to_file(path); }
  ~SecretFile() { std::filesystem::remove_all(folder); }
  static std::filesystem::path make_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "rondo-test-XXXXXX").string();
    return ::mkdtemp(name.data());
  }
};

std::string free_port() { return std::to_string(listen_on({"127.0.0.1"}, 0).port); }

using Environment = std::vector<std::string>;

// Starts a rank per environment, and expects each to print its rank and the sum.
void check_world(const std::vector<Environment>& ranks, const std::vector<std::vector<std::string>>& arguments) {
  const int n = static_cast<int>(ranks.size());
  std::vector<Program> programs;
  for (int rank = 0; rank < n; ++rank) {
    std::vector<std::string> command{RONDO_WORLD_PROGRAM};
    for (const std::string& each : arguments[static_cast<std::size_t>(rank)]) command.push_back(each);
    programs.emplace_back(command, ranks[static_cast<std::size_t>(rank)]);
  }
  for (int rank = 0; rank < n; ++rank) {
    Program& program = programs[static_cast<std::size_t>(rank)];
    const int code = program.wait();
    CAPTURE(program.err);
    CHECK(code == 0);
    CHECK(contains(program.out,
                   std::to_string(rank) + " of " + std::to_string(n) + ": " + std::to_string(n * (n - 1) / 2) + "\n"));
  }
}

Environment by_hand(int rank, int world_size, const std::string& port) {
  return {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(world_size), "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + port};
}
}  // namespace

TEST_CASE("the server alone serves until SIGTERM") {
  const SecretFile file;
  Program program({RONDO_RENDEZVOUS_PROGRAM, "--port", "0", "--job", "alone", "--secret-file", file.path}, {});
  const std::string line = program.line();
  CAPTURE(line);
  REQUIRE(line.starts_with("127.0.0.1:"));
  const auto port = static_cast<std::uint16_t>(std::stoi(line.substr(10)));
  in_threads(3, [&](int rank) {
    auto client = Client::connect({"127.0.0.1", port, file.secret, "alone"}, in(seconds(20)));
    client->join({.rank = rank, .world_size = 3}, in(seconds(20)));
  });
  program.signal(SIGTERM);
  CHECK(program.wait() == 0);
  CHECK(program.err.empty());
}

TEST_CASE("wrong flags get one sentence and code 2") {
  const SecretFile file;
  std::filesystem::permissions(file.path, std::filesystem::perms(0644));
  struct Row {
    std::vector<std::string> flags;
    const char* says;
  };
  const Row row =
      GENERATE(Row{{"--nothing"}, "--nothing"}, Row{{"--port", "x", "--insecure"}, "--port"},
               Row{{"--port", "0"}, "--secret-file"}, Row{{"--port", "0", "--secret-file", "FILE"}, "chmod 600"});
  std::vector<std::string> command{RONDO_RENDEZVOUS_PROGRAM};
  for (const std::string& flag : row.flags) command.push_back(flag == "FILE" ? file.path.string() : flag);
  Program program(command, {});
  CHECK(program.wait() == 2);
  CAPTURE(program.err);
  CHECK(contains(program.err, row.says));
  CHECK(std::count(program.err.begin(), program.err.end(), '\n') == 1);
}

TEST_CASE("an address that is taken is named") {
  const Listening taken = listen_on({"127.0.0.1"}, 0);
  Program program({RONDO_RENDEZVOUS_PROGRAM, "--insecure", "--port", std::to_string(taken.port)}, {});
  CHECK(program.wait() == 1);
  CHECK(contains(program.err, "127.0.0.1:" + std::to_string(taken.port)));
}

TEST_CASE("without a launcher's variable: a world of one") { check_world({{}}, {{}}); }

TEST_CASE("four variables in each of three shells") {
  const std::string port = free_port();
  check_world({by_hand(0, 3, port), by_hand(1, 3, port), by_hand(2, 3, port)}, {{}, {}, {}});
}

TEST_CASE("with a secret file, over the given port") {
  const SecretFile file;
  const std::string port = free_port();
  const Environment secret{"RONDO_SECRET_FILE=" + file.path.string()};
  const std::string host = GENERATE("127.0.0.1", "[::1]", "localhost");
  const std::string url = "tcp://" + host + ":" + port;
  check_world({secret, secret, secret}, {{url, "0", "3"}, {url, "1", "3"}, {url, "2", "3"}});
}

TEST_CASE("two worlds in turns from one environment, over a port that rank 0 serves at") {
  const SecretFile file;
  const std::string port = free_port();
  const Environment secret{"RONDO_SECRET_FILE=" + file.path.string()};
  std::vector<Environment> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(by_hand(rank, 3, port));
    ranks.back().push_back(secret.front());
  }
  check_world(ranks, {{}, {}, {}});
}

TEST_CASE("by a file") {
  const SecretFile file;
  const std::string url = "file://" + (file.folder / "meet").string();
  check_world({{}, {}}, {{url, "0", "2"}, {url, "1", "2"}});
  CHECK_FALSE(std::filesystem::exists(file.folder / "meet"));
}

TEST_CASE("never a silent world of one") {
  struct Row {
    Environment environment;
    const char* said;
  };
  const Row row = GENERATE(Row{{"RANK=0"}, "WORLD_SIZE"}, Row{{"WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"}, "not RANK"},
                           Row{{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"}, "not OMPI_COMM_WORLD_LOCAL_SIZE"},
                           Row{{"PMI_RANK=1"}, "PMI_RANK"},
                           Row{{"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2"}, "SLURM_JOB_ID"},
                           Row{{"SLURM_PROCID=1"}, "SLURM_PROCID=1"});
  Program program({RONDO_WORLD_PROGRAM}, row.environment);
  CHECK(program.wait() == 1);
  CHECK(program.out.empty());
  CHECK(contains(program.err, row.said));
}

TEST_CASE("two processes with the same rank are both told so at once") {
  Program server({RONDO_RENDEZVOUS_PROGRAM, "--insecure", "--port", "0"}, {"RONDO_LOG=error"});
  const std::string url = "tcp://" + server.line();
  const auto start = [&](const char* rank) {
    return Program({RONDO_WORLD_PROGRAM, url, rank, "2"}, {"RONDO_INSECURE=1"});
  };
  Program one = start("1"), other = start("1");
  const int codes[] = {one.wait(), other.wait()};
  CAPTURE(one.err, other.err);
  CHECK(codes[0] == 1);
  CHECK(codes[1] == 1);
  CHECK(contains(one.err, "two processes claim rank 1"));
  CHECK(one.err == other.err);
  Program first = start("0"), second = start("1");  // the server goes on
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
}
