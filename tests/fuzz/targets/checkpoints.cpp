// SPDX-License-Identifier: Apache-2.0
// Checkpoints as others write them.
#include <rondo/trainer/checkpoint.hpp>

#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {

void run_checkpoint(Bytes input) {
  using trainer::Checkpoint;
  Checkpoint read;
  if (!accepts([&] { read = Checkpoint::parse(input); })) return;
  std::vector<std::byte> written;
  if (!accepts([&] { written = read.serialize(); })) return;  // a type of a later version may not be ours to write
  const Checkpoint again = Checkpoint::parse(written);
  expect(again.tensors == read.tensors && again.texts == read.texts, "a checkpoint comes back as another");
}

std::vector<std::string> checkpoint_seeds() {
  trainer::Checkpoint checkpoint;
  checkpoint.tensors["w"] = {"F32", {2, 1}, std::vector<std::byte>(8)};
  checkpoint.tensors["mask"] = {"BOOL", {3}, std::vector<std::byte>(3)};
  checkpoint.texts["epoch"] = "7";
  return {text_of(checkpoint.serialize()), text_of(trainer::Checkpoint{}.serialize())};
}

}  // namespace rondo::fuzz
