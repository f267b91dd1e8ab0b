// SPDX-License-Identifier: Apache-2.0
// One cell on one rank: its buffers, its timed calls and its checked ones. Everything here is collective.
#pragma once
#include "bench/buffers.hpp"
#include "bench/sweep.hpp"

namespace rondo::bench {

class CellBench {
 public:
  CellBench(Communicator& communicator, Site& site, const Flags& flags, const Cell& cell, bool in_place);
  Measurement run();

 private:
  std::size_t width() const { return size_of(cell_.dtype); }
  std::size_t send_bytes() const { return in_place_ ? 0 : width() * cell_.send_count(); }
  std::size_t recv_bytes() const;
  std::byte* input(int set) const;
  std::byte* output(int set) const;
  void call(int set, int times);

  std::vector<double> time();
  double timed(Batch& batch);
  int agree_on_batches(double first_seconds) const;
  void combine(std::vector<double>& samples) const;
  bool is_record_of_call(const nlohmann::json& call) const;
  void record_choice(Measurement& m) const;

  std::vector<std::uint64_t> check();
  std::uint64_t wrong_after_one_call(int set, std::uint32_t seed);
  void load(int set, std::uint32_t seed);

  Communicator& communicator_;
  Site& site_;
  const Flags& flags_;
  const Cell& cell_;
  bool in_place_;
  int sets_;
  GuardedBuffer send_, recv_;
};

}  // namespace rondo::bench
