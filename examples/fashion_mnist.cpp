// SPDX-License-Identifier: Apache-2.0
// Data-parallel training on real images: every rank learns from its share, gradients are averaged while the backward
// pass runs.   rondorun --nproc-per-node 2 fashion_mnist
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <rondo/rondo.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

#include "examples/fashion_mnist/training.hpp"

namespace {

// Ranks as threads of this process, for a try without a launcher.
bool train_threads(int ranks, const rondo::Options& options, const fashion_mnist::Settings& settings) {
  std::vector<rondo::Communicator> communicators = rondo::Communicator::local(ranks, options);
  std::vector<char> good(communicators.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        good[i] = fashion_mnist::train(communicators[i], settings);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %zu: %s\n", i, error.what());
        communicators[i].abort();
      }
    });
  }
  threads.clear();  // joins
  for (const char one : good) {
    if (!one) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  fashion_mnist::Settings settings;
  std::string device = "cpu";
  int threads = 0;
  bool no_sync = false;
  CLI::App app("Trains a small classifier on Fashion-MNIST, one process per rank.");
  app.add_option("--epochs", settings.epochs, "passes over the training images")->check(CLI::PositiveNumber);
  app.add_option("--global-batch", settings.global_batch, "images of all ranks together in one step");
  app.add_option("--lr", settings.learning_rate, "learning rate");
  app.add_option("--seed", settings.seed, "seed of the shuffle and of rank 0's first parameters");
  app.add_option("--data", settings.data, "folder with the four gzipped idx files");
  app.add_option("--limit", settings.limit, "training images to use, 0 for all");
  app.add_option("--min-accuracy", settings.minimum_accuracy,
                 "percent that the last epoch must reach; 85 when two epochs saw all images, else 0");
  app.add_option("--device", device, "where the gradients live")->check(CLI::IsMember({"cpu", "cuda", "sim"}));
  app.add_option("--threads", threads, "ranks as threads of this process, without a launcher");
  app.add_flag("--no-sync", no_sync, "leave every all_reduce out: the claims must then fail");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (app.count("--min-accuracy") == 0 && settings.epochs >= 2 && settings.limit == 0) settings.minimum_accuracy = 85;
  settings.synchronise = !no_sync;
  try {
    if (device != "cpu")
      throw std::runtime_error("--device " + device + " is not in this build of the example; use cpu");
    if (threads > 0) return train_threads(threads, {}, settings) ? 0 : 1;
    auto communicator = rondo::Communicator::from_environment();
    return fashion_mnist::train(communicator, settings) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fashion_mnist: %s\n", error.what());
    return 1;
  }
}
