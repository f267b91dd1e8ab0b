// SPDX-License-Identifier: Apache-2.0
#include "examples/cifar/training.hpp"

#include <torch/torch.h>

#include <array>
#include <chrono>
#include <cstdio>

#include <rondo/torch.hpp>
#include <rondo/trainer/drift.hpp>
#include <rondo/trainer/sampler.hpp>

#include "examples/cifar/network.hpp"

namespace cifar {
namespace {

using rondo::trainer::DistributedSampler;
using Clock = std::chrono::steady_clock;

struct Batch {
  torch::Tensor images, labels;
};

// key 0: the images as they are; else what the augmentation draws from.
Batch make_batch(const Dataset& data, std::span<const std::size_t> indices, std::uint64_t key) {
  const auto count = static_cast<std::int64_t>(indices.size());
  Batch batch{torch::empty({count, kChannels, kSide, kSide}), torch::empty({count}, torch::kLong)};
  float* image = batch.images.data_ptr<float>();
  for (std::size_t i = 0; i < indices.size(); ++i, image += kPixels) {
    const std::size_t sample = indices[i];
    if (key == 0) {
      normalise(data.image(sample), image);
    } else {
      crop_flip_normalise(data.image(sample), key * data.size() + sample, image);
    }
    batch.labels.data_ptr<std::int64_t>()[i] = data.labels[sample];
  }
  return batch;
}

template <class Body>
void for_each_batch(const std::vector<std::size_t>& indices, std::size_t size, Body body) {
  for (std::size_t first = 0; first < indices.size(); first += size)
    body(std::span(indices).subspan(first, std::min(size, indices.size() - first)));
}

// Percent over all ranks; every image counts once.
double accuracy(rondo::Communicator& communicator, ConvNetImpl& net, const Dataset& test, std::size_t batch_size) {
  const torch::NoGradGuard guard;
  const DistributedSampler sampler(test.size(), communicator.rank(), communicator.world_size(),
                                   {.shuffle = false, .tail = rondo::trainer::Tail::exact});
  std::array<std::int64_t, 2> right_and_all{};
  for_each_batch(sampler.indices(), batch_size, [&](std::span<const std::size_t> indices) {
    const Batch batch = make_batch(test, indices, 0);
    right_and_all[0] += net.forward(batch.images).argmax(1).eq(batch.labels).sum().item<std::int64_t>();
    right_and_all[1] += static_cast<std::int64_t>(indices.size());
  });
  communicator.all_reduce(std::span(right_and_all), rondo::ReduceOp::sum);
  return 100.0 * static_cast<double>(right_and_all[0]) / static_cast<double>(right_and_all[1]);
}

}  // namespace

bool train(rondo::Communicator& communicator, const Dataset& training, const Dataset& test, const Settings& settings) {
  torch::manual_seed(static_cast<std::uint64_t>(communicator.rank()));  // only the wrapper makes the replicas equal
  ConvNet net;
  rondo::DistributedDataParallel model(communicator, net);
  torch::optim::SGD optimizer(net->parameters(),
                              torch::optim::SGDOptions(settings.learning_rate).momentum(settings.momentum));
  rondo::trainer::DriftCheck drift(communicator, 1);
  const std::size_t samples = settings.limit == 0 ? training.size() : std::min(settings.limit, training.size());
  DistributedSampler sampler(samples, communicator.rank(), communicator.world_size());
  const bool prints = communicator.rank() == 0;
  if (prints) std::printf("%zu images, %zu of each rank in a step\n", samples, settings.batch);

  double percent = 0;
  for (int epoch = 1; epoch <= settings.epochs; ++epoch) {
    const auto start = Clock::now();
    double loss_sum = 0;
    std::size_t steps = 0;
    for_each_batch(sampler.next_epoch(), settings.batch, [&](std::span<const std::size_t> indices) {
      const Batch batch = make_batch(training, indices, static_cast<std::uint64_t>(epoch));
      optimizer.zero_grad();
      const torch::Tensor loss = torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
      ++steps;
    });
    drift.check(model.state());
    percent = accuracy(communicator, *net, test, settings.batch);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (prints) {
      std::printf("epoch %d: loss %.4f here, accuracy %.2f %%, %.1f s, %zu steps\n", epoch,
                  loss_sum / static_cast<double>(steps), percent, seconds, steps);
    }
  }
  const bool good = percent >= settings.minimum_accuracy;
  if (prints) {
    std::printf("result: ranks %d, accuracy %.2f, replicas equal, %s\n", communicator.world_size(), percent,
                good ? "good" : "below what was asked for");
  }
  return good;
}

}  // namespace cifar
