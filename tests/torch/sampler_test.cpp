// SPDX-License-Identifier: Apache-2.0
// DistributedSampler under libtorch's data loaders.
#include <rondo/torch/sampler.hpp>

#include <sstream>

#include "tests/torch/models.hpp"

namespace {

using rondo::TorchSampler;
using rondo::trainer::DistributedSampler;
using List = std::vector<std::size_t>;

constexpr std::size_t kSamples = 23;

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(std::size_t index) override {
    return {torch::tensor(static_cast<std::int64_t>(index)), torch::tensor(0)};
  }
  torch::optional<std::size_t> size() const override { return kSamples; }
};

List rest(TorchSampler& sampler, std::size_t batch = 4) {
  List all;
  while (const auto some = sampler.next(batch)) all.insert(all.end(), some->begin(), some->end());
  return all;
}
List epoch_of(int rank, int world_size, std::uint64_t epoch, rondo::trainer::SamplerOptions options = {}) {
  DistributedSampler sampler(kSamples, rank, world_size, options);
  sampler.set_epoch(epoch);
  return sampler.indices();
}

}  // namespace

TEST_CASE("libtorch: a data loader gets each rank's list, another one in every epoch") {
  for (const std::size_t workers : {0U, 2U}) {
    for (int rank = 0; rank < 3; ++rank) {
      const rondo::trainer::SamplerOptions options{.seed = 7, .tail = rondo::trainer::Tail::exact};
      auto loader = torch::data::make_data_loader(Numbers().map(torch::data::transforms::Stack<>()),
                                                  TorchSampler(kSamples, rank, 3, options),
                                                  torch::data::DataLoaderOptions(4).workers(workers));
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        List seen;
        for (const auto& batch : *loader) {
          for (std::int64_t i = 0; i < batch.data.numel(); ++i)
            seen.push_back(static_cast<std::size_t>(batch.data[i].item<std::int64_t>()));
        }
        CHECK(seen == epoch_of(rank, 3, epoch, options));
      }
    }
  }
}

TEST_CASE("libtorch: a sampler without a loader, of a chosen epoch, and of another number of samples") {
  TorchSampler sampler(kSamples, 1, 2);
  CHECK(rest(sampler) == epoch_of(1, 2, 0));
  CHECK(rest(sampler).empty());
  sampler.reset();
  CHECK(sampler.epoch() == 1);
  CHECK(rest(sampler, 100) == epoch_of(1, 2, 1));
  sampler.set_epoch(9);
  CHECK(rest(sampler) == epoch_of(1, 2, 9));
  sampler.reset(10);
  CHECK(rest(sampler).size() == 5);
  CHECK_THROWS_AS(sampler.next(0), rondo::Error);
}

TEST_CASE("libtorch: a sampler goes on where it was saved, and refuses a place that it does not have") {
  TorchSampler sampler(kSamples, 1, 2);
  sampler.set_epoch(3);
  sampler.next(5);
  std::stringstream stream;
  {
    torch::serialize::OutputArchive archive;
    sampler.save(archive);
    archive.save_to(stream);
  }
  const auto load = [&](TorchSampler& into) {
    torch::serialize::InputArchive archive;
    stream.seekg(0);
    archive.load_from(stream);
    into.load(archive);
  };
  TorchSampler other(kSamples, 1, 2);
  load(other);
  CHECK(rest(other) == rest(sampler));
  other.reset();
  CHECK(rest(other) == epoch_of(1, 2, 4));
  TorchSampler small(4, 1, 2);
  CHECK(rondo::test::contains(rondo::test::sentence_of(rondo::test::thrown_by([&] { load(small); })),
                              "sample 5 of an epoch of 2 cannot be the place to go on"));
}
