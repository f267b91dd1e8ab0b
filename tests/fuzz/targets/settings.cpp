// SPDX-License-Identifier: Apache-2.0
// What people write into our own variables and tuning files.
#include <cstdlib>
#include <map>

#include "comm/setup/config.hpp"
#include "comm/transport/transport.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/fuzz/variables.hpp"

namespace rondo::fuzz {

void run_tuning(Bytes input) {
  comm::Tuning tuning;
  if (!accepts([&] { tuning = comm::parse_tuning(as_text(input), "FILE"); })) return;
  const std::string text = to_text(tuning);
  const comm::Tuning again = comm::parse_tuning(text, "FILE");
  expect(to_text(again) == text, "a tuning is written otherwise than it was read");
}

std::vector<std::string> tuning_seeds() {
  comm::Tuning tuning = comm::parse_tuning("links all_reduce 64K 8 ring\nlinks all_reduce * * ring\n", "FILE");
  return {to_text(comm::Tuning{}), to_text(tuning), "cold_bytes 1M # comment\n\nsingle_copy_bytes never\n"};
}

void run_configuration(Bytes input) {
  static const std::vector<const char*> kNames = {
      "RONDO_TRANSPORT",     "RONDO_ALGORITHM", "RONDO_PROTOCOL", "RONDO_SLICE_BYTES", "RONDO_FIFO_SLOTS",
      "RONDO_SEGMENT_BYTES", "RONDO_SPIN",      "RONDO_YIELDS",   "RONDO_RSEQ",        "RONDO_LINK_PATIENCE_MS"};
  static ProcessVariables variables(kNames);
  variables.set(input);
  comm::Config config;
  if (!accepts([&] { config = comm::Config::from_environment(comm::transports()); })) return;
  expect(config.slots >= 2 && config.slots <= 64 && config.slice_bytes % 64 == 0 && config.slice_bytes >= 64,
         "a FIFO that cannot be");
}

std::vector<std::string> configuration_seeds() {
  return {"tcp", "\nring_all_reduce\nll", "\n\n\n4096\n8\n1000000\n600\n50\nkeep\n3000", "\n\n\n99999999999999999999"};
}

}  // namespace rondo::fuzz
