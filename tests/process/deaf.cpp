// SPDX-License-Identifier: Apache-2.0
// A program that is started without some of stdin, stdout and stderr, and writes there nonetheless: deaf cpu|sim [spawn
// WORLD_SIZE | URL RANK WORLD_SIZE]. What it writes must reach nothing. Exit code 3: it did; 4: a sum was wrong.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

using rondo::Communicator;
using rondo::ReduceOp;

std::vector<int> missing;

void write_to_nobody() {
  static const std::string noise(4096, 'x');
  for (const int fd : missing) {
    if (::write(fd, noise.data(), noise.size()) >= 0 || errno != EBADF) ::_exit(3);
  }
}

void check(bool right) {
  if (!right) ::_exit(4);
}

void use(Communicator& comm) {
  const auto sum = static_cast<float>(comm.world_size() * (comm.world_size() + 1) / 2);
  const auto window = comm.allocate<float>(100'000);
  std::vector<float> data(10'000);
  const bool on_host = comm.device().kind == rondo::Device::Kind::cpu;
  for (int round = 0; round < 20; ++round) {
    write_to_nobody();
    if (!on_host) {
      comm.all_reduce(window.span(), ReduceOp::sum);
      comm.synchronize();
      continue;
    }
    data.assign(data.size(), static_cast<float>(comm.rank() + 1));
    for (float& value : window.span()) value = 1;
    comm.async().all_reduce(data, ReduceOp::sum).wait();
    comm.all_reduce(window.span(), ReduceOp::sum);
    check(data.back() == sum && window.span().back() == static_cast<float>(comm.world_size()));
  }
  auto same = comm.split(0, comm.rank());
  write_to_nobody();
  same.barrier();
  write_to_nobody();
}

}  // namespace

int main(int count, char** argv) {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::dup2(fd, fd) < 0) missing.push_back(fd);
  }
  const std::string device = argv[1], how = argv[2];
  if (how == "spawn") return rondo::spawn(std::atoi(argv[3]), use);
  rondo::Options options;
  options.timeout = options.join_timeout = std::chrono::seconds(20);
  if (device == "sim") options.device = rondo::Device::sim();
  try {
    rondo::Rendezvous place{.url = how};
    if (count > 3) place.rank = std::atoi(argv[3]), place.world_size = std::atoi(argv[4]);
    auto comm = Communicator::create(place, options);
    use(comm);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}
