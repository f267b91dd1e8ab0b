// SPDX-License-Identifier: Apache-2.0
// Simulated devices on two hosts: between them, what kernels send goes over TCP.
#include "tests/process/device_bench.hpp"
#include "tests/process/secret_file.hpp"

using namespace rondo::test;

TEST_CASE("two hosts with two ranks each") {
  if (!namespaces_possible()) return;
  const Host left, right;
  connect(left, right);
  left.add_address("10.77.0.1/24");
  right.add_address("10.77.0.2/24");
  const SecretFile secret("device");
  const auto node = [&](const Host& host, const char* index, const Words& program) {
    return host.inside(rondorun({"--nnodes", "2", "--node-rank", index, "--nproc-per-node", "2", "--master-addr",
                                 "10.77.0.1", "--secret-file", secret.path, "--join-timeout", "20"}) +
                       program);
  };
  std::vector<Words> programs{bench("all_reduce_perf", {"-G", "100"}, "512")};  // what graphs send, nobody announces
  for (const auto& program : kPrograms) programs.push_back(bench(program));
  for (const auto& program : programs) {
    CAPTURE(program);
    Running first(node(left, "0", program)), second(node(right, "1", program));
    check_right_and_labelled(first.wait());
    const auto ended = second.wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
  }
}
