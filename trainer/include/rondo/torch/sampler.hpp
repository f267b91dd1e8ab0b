// SPDX-License-Identifier: Apache-2.0
// A rank's share of the samples for torch::data's loaders: the lists of trainer::DistributedSampler, which are those of
// Python's, in batches. (libtorch's own DistributedRandomSampler deals in pieces of neighbours.)
//
//   auto loader = torch::data::make_data_loader(dataset, rondo::TorchSampler(count, comm.rank(), comm.world_size()),
//   64); for (int epoch = 0; epoch < epochs; ++epoch)
//     for (auto& batch : *loader) ...
#pragma once
#include <torch/data/samplers/base.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <rondo/trainer/sampler.hpp>

namespace rondo {

// A DistributedSampler for torch::data's loaders. One thread at a time.
class TorchSampler : public torch::data::samplers::Sampler<> {
 public:
  // Error(invalid_argument) unless 0 <= rank < world_size.
  TorchSampler(std::size_t sample_count, int rank, int world_size, trainer::SamplerOptions options = {})
      : rank_(rank), world_size_(world_size), options_(options), sampler_(sample_count, rank, world_size, options) {}

  // Of the pass that begins next. A loader takes its sampler away, and each begin() is another epoch: 0, 1, 2 and so on
  // from what is said here before.
  void set_epoch(std::uint64_t epoch) {
    next_epoch_ = epoch;
    begun_ = false;
  }
  std::uint64_t epoch() const { return begun_ ? next_epoch_ - 1 : next_epoch_; }
  std::size_t size() const { return sampler_.size(); }  // samples of this rank per epoch

  // As libtorch names them.
  using OptionalSize = torch::optional<std::size_t>;
  using OptionalBatch = torch::optional<BatchRequestType>;

  // Begins the next epoch, of another number of samples in all if one is given.
  void reset(OptionalSize new_size = {}) override {
    if (new_size) sampler_ = trainer::DistributedSampler(*new_size, rank_, world_size_, options_);
    sampler_.set_epoch(next_epoch_++);
    indices_ = sampler_.indices();
    at_ = 0;
    begun_ = true;
  }

  // Nothing when the epoch is over; the last batch may be smaller.
  OptionalBatch next(std::size_t batch_size) override {
    if (!begun_) reset();
    if (batch_size == 0) {
      throw Error(ErrorCode::invalid_argument,
                  "TorchSampler: batches of 0 samples never end; give the loader a batch size of at least 1");
    }
    if (at_ == indices_.size()) return {};
    const auto begin = indices_.begin() + static_cast<std::ptrdiff_t>(at_);
    const std::size_t count = std::min(batch_size, indices_.size() - at_);
    at_ += count;
    return BatchRequestType(begin, begin + static_cast<std::ptrdiff_t>(count));
  }

  // The place in the epoch. Read by a sampler of the same samples and ranks, it goes on there.
  void save(torch::serialize::OutputArchive& archive) const override {
    archive.write("epoch", torch::tensor(static_cast<std::int64_t>(epoch()), torch::kInt64), true);
    archive.write("at", torch::tensor(static_cast<std::int64_t>(at_), torch::kInt64), true);
  }
  // Error(invalid_argument) for a place that this rank's epoch does not have.
  void load(torch::serialize::InputArchive& archive) override {
    torch::Tensor epoch, at;
    archive.read("epoch", epoch, true);
    archive.read("at", at, true);
    const auto place = at.item<std::int64_t>();
    if (place < 0 || static_cast<std::size_t>(place) > size() || epoch.item<std::int64_t>() < 0) {
      throw Error(ErrorCode::invalid_argument,
                  "TorchSampler: sample " + std::to_string(place) + " of an epoch of " + std::to_string(size()) +
                      " cannot be the place to go on; load it with the same samples and ranks");
    }
    next_epoch_ = static_cast<std::uint64_t>(epoch.item<std::int64_t>());
    reset();
    at_ = static_cast<std::size_t>(place);
  }

 private:
  int rank_, world_size_;
  trainer::SamplerOptions options_;
  trainer::DistributedSampler sampler_;
  std::uint64_t next_epoch_ = 0;
  std::vector<std::size_t> indices_;  // of the epoch that has begun
  std::size_t at_ = 0;
  bool begun_ = false;
};

}  // namespace rondo
