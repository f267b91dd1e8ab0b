// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/training.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/trainer.hpp>

#include "examples/fashion_mnist/dataset.hpp"
#include "examples/fashion_mnist/mirror.hpp"
#include "examples/fashion_mnist/network.hpp"
#include "examples/fashion_mnist/progress.hpp"
#include "examples/fashion_mnist/scores.hpp"

namespace fashion_mnist {
namespace {

// Mean and deviation of the training set's pixels, in units of 255.
constexpr float kMean = 0.2860F;
constexpr float kDeviation = 0.3530F;
// Small enough that the last layer's gradients travel while the first layer's are computed.
constexpr std::size_t kFirstBucketBytes = 16 * 1024;
constexpr std::size_t kScaleInterval = 200;  // good steps until a larger loss scale is tried

struct Batch {
  std::vector<float> images;
  std::vector<std::uint8_t> labels;

  void fill(const Dataset& data, std::span<const std::size_t> indices) {
    images.resize(indices.size() * kPixels);
    labels.resize(indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::uint8_t* pixels = data.pixels.data() + indices[i] * kPixels;
      for (std::size_t p = 0; p < kPixels; ++p) {
        images[i * kPixels + p] = (static_cast<float>(pixels[p]) / 255.0F - kMean) / kDeviation;
      }
      labels[i] = data.labels[indices[i]];
    }
  }
};

// FNV-1a over the parameters' bytes.
std::uint64_t hash(Network& network) {
  std::uint64_t h = 14695981039346656037U;
  for (const Tensor& t : network.tensors()) {
    for (const std::byte b : std::as_bytes(std::span(t.values)))
      h = (h ^ std::to_integer<std::uint64_t>(b)) * 1099511628211U;
  }
  return h;
}

class Trainer {
 public:
  Trainer(rondo::Communicator& gradients, rondo::Communicator& host, const Settings& settings);
  bool run();

 private:
  struct Epoch {
    double loss = 0;              // mean over the training images, while learning
    double accuracy = 0, f1 = 0;  // of the test images, afterwards; percent, and 0 to 1
    double images_per_second = 0;
    bool covered = false, evaluated = false;  // every image once: in training, in the test
  };

  Epoch train_epoch(int epoch);
  void evaluate(Epoch& epoch);
  bool covers_all(const std::vector<std::size_t>& mine);
  void learn();
  void average_gradients();
  std::vector<Prediction> predictions();
  std::string run_name() const;
  Progress begin();
  void print_overlap();
  void print_result(const Progress& progress, const Epoch& last, bool identical);
  bool replicas_identical();
  bool print_claims(const Epoch& last, bool identical);
  template <class T>
  void all_reduce_sum(T&& values) {
    if (settings_.synchronise) communicator_.all_reduce(values, rondo::ReduceOp::sum);
  }
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    if (communicator_.rank() != 0) return;
    fmt::print(format, std::forward<Args>(args)...);
    std::fflush(stdout);
  }

  rondo::Communicator& communicator_;
  const Settings& settings_;
  Dataset train_set_, test_set_;
  Network network_;
  Mirror mirror_;
  rondo::trainer::DistributedSampler sampler_;
  rondo::trainer::GradientSynchronizer synchronizer_;
  rondo::trainer::LossScaler scaler_;
  Batch batch_;
};

std::size_t world(const rondo::Communicator& communicator) {
  return static_cast<std::size_t>(communicator.world_size());
}

void check_division(std::size_t images, const Settings& settings, std::size_t world_size) {
  if (settings.global_batch == 0 || settings.global_batch % world_size != 0 || images % world_size != 0) {
    throw std::runtime_error(
        fmt::format("{} images in global batches of {} do not divide among {} ranks; choose --limit and --global-batch "
                    "as multiples of the number of ranks",
                    images, settings.global_batch, world_size));
  }
}

// Each rank starts from other numbers: only the broadcast from rank 0 makes the replicas equal.
Trainer::Trainer(rondo::Communicator& gradients, rondo::Communicator& host, const Settings& settings)
    : communicator_(host),
      settings_(settings),
      train_set_(load(settings.data, "train", settings.limit)),
      test_set_(load(settings.data, "t10k", 0)),
      network_(settings.seed + static_cast<std::uint32_t>(host.rank()), rounding(settings.precision)),
      mirror_(network_, gradients.device(), gradient_type(settings.precision)),
      sampler_(train_set_.size(), host.rank(), host.world_size(), {.seed = settings.seed}),
      synchronizer_(gradients, mirror_.parameters(),
                    {.first_bucket_bytes = kFirstBucketBytes, .stream = mirror_.stream()}),
      scaler_({.scale = settings.loss_scale, .interval = kScaleInterval}) {
  check_division(train_set_.size(), settings, world(host));
  mirror_.values_to_host();  // rank 0's, which the synchronizer has brought
  network_.round_values();
}

// Every rank counts its own samples; the sum must be one everywhere.
bool Trainer::covers_all(const std::vector<std::size_t>& mine) {
  std::vector<std::int32_t> seen(train_set_.size());
  for (const std::size_t index : mine) ++seen[index];
  all_reduce_sum(seen);
  return std::all_of(seen.begin(), seen.end(), [](std::int32_t times) { return times == 1; });
}

Trainer::Epoch Trainer::train_epoch(int epoch) {
  const auto begin = std::chrono::steady_clock::now();
  sampler_.set_epoch(static_cast<std::uint64_t>(epoch));
  const std::vector<std::size_t> mine = sampler_.indices();
  Epoch result{.covered = covers_all(mine)};
  const std::size_t local_batch = settings_.global_batch / world(communicator_);
  for (std::size_t first = 0; first < mine.size(); first += local_batch) {
    batch_.fill(train_set_, std::span(mine).subspan(first, std::min(local_batch, mine.size() - first)));
    synchronizer_.begin_forward(first / local_batch);  // a rank that skips one would be found out
    result.loss += network_.forward(batch_.images, batch_.labels).loss;
    learn();
  }
  all_reduce_sum(std::span(&result.loss, 1));
  const auto images = static_cast<double>(train_set_.size());
  result.loss /= images;
  result.images_per_second = images / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  evaluate(result);
  return result;
}

// Counts add up over the ranks. The F1 score does not: it takes all predictions in one place.
void Trainer::evaluate(Epoch& epoch) {
  const std::vector<Prediction> own = predictions();
  std::int64_t correct =
      std::count_if(own.begin(), own.end(), [](const Prediction& p) { return p.label == p.predicted; });
  all_reduce_sum(std::span(&correct, 1));
  epoch.accuracy = 100.0 * static_cast<double>(correct) / static_cast<double>(test_set_.size());
  const auto all = settings_.synchronise ? gather_all(communicator_, own, rondo::trainer::GatherOrder::dealt) : own;
  epoch.f1 = macro_f1(all);
  epoch.evaluated = std::equal(all.begin(), all.end(), test_set_.labels.begin(), test_set_.labels.end(),
                               [](const Prediction& p, std::uint8_t label) { return p.label == label; });
}

// Scaled gradients come back as doubles, where the scale is taken off without a loss. A step whose average is not
// finite is left out, by all ranks alike.
void Trainer::learn() {
  average_gradients();
  if (settings_.precision != Precision::full) {
    std::vector<rondo::trainer::Parameter> gradients;
    for (Tensor& t : network_.tensors())
      gradients.push_back(rondo::trainer::parameter(t.name, std::span(t.values), std::span(t.gradient)));
    if (!scaler_.unscale(gradients)) return;
  }
  network_.update(settings_.learning_rate, settings_.momentum);
}

void Trainer::average_gradients() {
  const double scale = settings_.precision == Precision::full ? 1 : scaler_.scale();
  const auto ready = [this](std::size_t tensor) {
    mirror_.gradient_to_device(tensor);
    if (settings_.synchronise) synchronizer_.ready(tensor);
  };
  network_.backward(ready, scale);
  if (settings_.synchronise) synchronizer_.finish();
  mirror_.gradients_to_host();
}

// Of this rank's test images, whose number differs between ranks.
std::vector<Prediction> Trainer::predictions() {
  const rondo::trainer::DistributedSampler every_image_once(test_set_.size(), communicator_.rank(),
                                                            communicator_.world_size(),
                                                            {.shuffle = false, .tail = rondo::trainer::Tail::exact});
  const std::vector<std::size_t> mine = every_image_once.indices();
  std::vector<Prediction> own;
  constexpr std::size_t kBatch = 256;
  for (std::size_t first = 0; first < mine.size(); first += kBatch) {
    batch_.fill(test_set_, std::span(mine).subspan(first, std::min(kBatch, mine.size() - first)));
    network_.forward(batch_.images, batch_.labels);
    for (std::size_t i = 0; i < batch_.labels.size(); ++i) own.push_back({batch_.labels[i], network_.predicted()[i]});
  }
  return own;
}

bool Trainer::replicas_identical() {
  const std::vector<std::uint64_t> mine{hash(network_)};
  std::vector<std::uint64_t> all(world(communicator_));
  communicator_.all_gather(mine, all);
  return std::all_of(all.begin(), all.end(), [&](std::uint64_t h) { return h == mine[0]; });
}

bool Trainer::print_claims(const Epoch& last, bool identical) {
  const auto claim = [this](bool holds, const std::string& sentence) {
    print("claim: {}: {}\n", sentence, holds ? "yes" : "NO");
    return holds;
  };
  bool all = claim(last.covered, fmt::format("the shards are disjoint and cover all {} images", train_set_.size()));
  all &= claim(last.evaluated, fmt::format("each of the {} test images was judged once", test_set_.size()));
  all &= claim(identical, "the replicas' parameters are the same bits on all ranks");
  if (settings_.minimum_accuracy > 0) {
    all &= claim(last.accuracy >= settings_.minimum_accuracy,
                 fmt::format("the test accuracy is at least {} %", settings_.minimum_accuracy));
  }
  return all;
}

// What makes two runs the same training, whatever the number of ranks.
std::string Trainer::run_name() const {
  return fmt::format("seed {}, {} images in global batches of {}, learning rate {}, {}", settings_.seed,
                     train_set_.size(), settings_.global_batch, settings_.learning_rate, name_of(settings_.precision));
}

Progress Trainer::begin() {
  print("# {} ranks, gradients on {}, global batch {} ({} a rank), {} training and {} test images\n",
        communicator_.world_size(), settings_.label, settings_.global_batch,
        settings_.global_batch / world(communicator_), train_set_.size(), test_set_.size());
  if (settings_.checkpoint.empty()) return {};
  print("# rank 0 is process {}\n", ::getpid());
  const auto found = resume(communicator_, settings_.checkpoint, run_name(), network_, scaler_);
  if (found) print("# going on after epoch {} from {}\n", found->epochs, settings_.checkpoint);
  return found.value_or(Progress{});
}

bool Trainer::run() {
  Progress progress = begin();
  Epoch last{.covered = true};
  if (progress.epochs >= settings_.epochs) evaluate(last);
  while (progress.epochs < settings_.epochs) {
    const bool covered = last.covered;
    last = train_epoch(progress.epochs);
    last.covered &= covered;
    if (progress.epochs++ == 0) progress.first_loss = last.loss;
    progress.loss = last.loss;
    if (!settings_.checkpoint.empty())
      save(communicator_, settings_.checkpoint, run_name(), progress, network_, scaler_);
    print("epoch {}: loss {:.5f}, test accuracy {:.2f} %, {:.0f} images/s ({})\n", progress.epochs, last.loss,
          last.accuracy, last.images_per_second, settings_.label);
  }
  const bool identical = replicas_identical();
  const bool all = print_claims(last, identical);
  print_overlap();
  print_result(progress, last, identical);
  communicator_.barrier();  // a launcher may stop the others when one fails; rank 0 has printed by now
  return all;
}

void Trainer::print_overlap() {
  const rondo::trainer::Statistics& sums = synchronizer_.statistics();
  if (sums.steps == 0) return;
  const auto ms = [&](double seconds) { return 1e3 * seconds / static_cast<double>(sums.steps); };
  print("# a step on rank 0, mean: backward {:.3f} ms, communication {:.3f} ms, exposed {:.3f} ms ({})\n",
        ms(sums.backward_seconds), ms(sums.communication_seconds), ms(sums.exposed_seconds), settings_.label);
}

void Trainer::print_result(const Progress& progress, const Epoch& last, bool identical) {
  print(
      "result world={} epochs={} first_epoch_loss={:.9g} loss={:.9g} accuracy={:.2f} f1={:.4f} "
      "images_per_second={:.0f} parameters={:016x} replicas={} shards={} device={} precision={} loss_scale={:g} "
      "skipped={}\n",
      communicator_.world_size(), progress.epochs, progress.first_loss, progress.loss, last.accuracy, last.f1,
      last.images_per_second, hash(network_), identical ? "identical" : "different", last.covered ? "exact" : "wrong",
      settings_.label, name_of(settings_.precision), scaler_.scale(), scaler_.skipped());
}

}  // namespace

bool train(rondo::Communicator& gradients, rondo::Communicator& host, const Settings& settings) {
  return Trainer(gradients, host, settings).run();
}

}  // namespace fashion_mnist
