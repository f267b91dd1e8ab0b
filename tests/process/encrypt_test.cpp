// SPDX-License-Identifier: Apache-2.0
// Encrypted jobs: on hosts whose network keeps all frames, and on this one.
#include <memory>

#include "tests/process/network.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

// A launcher on each host, and two ranks.
std::vector<std::unique_ptr<Running>> start_on(const Network& network, const SecretFile& secret,
                                               const std::vector<Words>& flags) {
  std::vector<std::unique_ptr<Running>> launchers;
  for (std::size_t host = 0; host < network.size(); ++host) {
    const Words meeting{"--nnodes",
                        std::to_string(network.size()),
                        "--node-rank",
                        std::to_string(host),
                        "--master-addr",
                        Network::address(0),
                        "--master-port",
                        "29500",
                        "--secret-file",
                        secret.path,
                        "-n",
                        "2"};
    const Words program{"--", tool("confider")};
    launchers.push_back(
        std::make_unique<Running>(network.host(host).inside(rondorun(meeting + flags[host] + program))));
  }
  return launchers;
}

}  // namespace

TEST_CASE("of a job on two hosts a recording of the network tells all, and nothing when it is encrypted") {
  if (!networks_possible()) return;
  const bool encrypts = GENERATE(false, true);
  const Network network(2, 1);
  const SecretFile secret("encrypt");
  for (const auto& launcher :
       start_on(network, secret, std::vector<Words>(2, encrypts ? Words{"--encrypt"} : Words{}))) {
    const Ended ended = launcher->wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
  }
  const std::string recording = network.recording();
  CHECK(recording.size() > 100'000);
  for (const char* words : {"confided as a value", "confided as data", "confided as a message", "launcher/0/nodes",
                            "launcher/0/verdict", "world@0/cards"}) {
    CAPTURE(words);
    CHECK(has(recording, words) != encrypts);
  }
}

// The first goes on waiting for one that does as it does.
TEST_CASE("a launcher that encrypts and one that does not do not meet, and the one that comes is told why") {
  if (!networks_possible()) return;
  const bool first = GENERATE(false, true);
  const Network network(2, 1);
  const SecretFile secret("encrypt");
  const Words encrypts{"--encrypt"};
  const auto launchers = start_on(network, secret, {first ? encrypts : Words{}, first ? Words{} : encrypts});
  const Ended ended = launchers[1]->wait();
  CHECK(ended.code != 0);
  const std::string sentence = first ? "the server encrypts its connections and the client does not"
                                     : "the client encrypts its connections and the server does not";
  CHECK(has(ended.err, sentence));
  CHECK_FALSE(has(network.recording(), "confided"));
}

TEST_CASE("a job on one host is encrypted where its ranks speak over TCP, by flag or by variable") {
  const bool by_flag = GENERATE(true, false);
  const int ranks = GENERATE(2, 4);
  Words words{"-n", std::to_string(ranks)};
  if (by_flag) words = words + Words{"--encrypt"};
  const Words plain{"RONDO_TRANSPORT=tcp"}, encrypted{"RONDO_TRANSPORT=tcp", "RONDO_ENCRYPT=1"};
  const Ended ended =
      run(rondorun(words + Words{"--", tool("confider")}), {.environment = by_flag ? plain : encrypted});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
}

TEST_CASE("encryption that cannot be had is refused by name") {
  const Ended open = run(rondorun({"--encrypt", "--nnodes", "2", "--master-addr", "h", "--no-secret", "true"}));
  CHECK(open.code != 0);
  CHECK(has(open.err, "--encrypt cannot be had with --no-secret"));
  const Ended insecure =
      run({tool("confider")}, {.environment = {"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
                                               "RONDO_INSECURE=1", "RONDO_ENCRYPT=1"}});
  CHECK(insecure.code != 0);
  CHECK(has(insecure.err, "RONDO_ENCRYPT=1 needs the job's secret"));
  const Ended unclear = run({tool("confider")}, {.environment = {"RONDO_ENCRYPT=yes"}});
  CHECK(unclear.code != 0);
  CHECK(has(unclear.err, "RONDO_ENCRYPT=yes"));
}
