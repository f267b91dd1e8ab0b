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

#include "examples/command_line.hpp"
#include "examples/fashion_mnist/training.hpp"

namespace {

rondo::Device device_named(const std::string& name) {
  if (name == "cpu") return rondo::Device::cpu();
  return name == "sim" ? rondo::Device::sim() : rondo::Device::cuda();
}

// One process of a job. The network is the host's, so what it counts goes over a communicator of the host as well.
bool train_process(rondo::Device device, const fashion_mnist::Settings& settings) {
  auto gradients = rondo::Communicator::from_environment({.device = device});
  if (device.kind == rondo::Device::Kind::cpu) return fashion_mnist::train(gradients, gradients, settings);
  auto host = rondo::Communicator::from_environment();
  return fashion_mnist::train(gradients, host, settings);
}

// Ranks as threads of this process, for a try without a launcher.
bool train_threads(int ranks, rondo::Device device, const fashion_mnist::Settings& settings) {
  auto gradients = rondo::Communicator::local(ranks, {.device = device});
  auto host = rondo::Communicator::local(ranks);
  std::vector<char> good(gradients.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < good.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        good[i] = fashion_mnist::train(gradients[i], host[i], settings);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %zu: %s\n", i, error.what());
        gradients[i].abort();
        host[i].abort();
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
  std::string device = "cpu", precision = "f32";
  int threads = 0;
  bool no_sync = false;
  CLI::App app("Trains a small classifier on Fashion-MNIST, one process per rank.");
  app.add_option("--epochs", settings.epochs, "passes over the training images")->check(CLI::Range(1, 1000000));
  app.add_option("--global-batch", settings.global_batch, "images of all ranks together in one step")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--lr", settings.learning_rate, "learning rate")->check(CLI::Range(0.0, 1000.0));
  app.add_option("--seed", settings.seed, "seed of the shuffle and of rank 0's first parameters")
      ->check(CLI::Range(0L, 4294967295L));
  app.add_option("--data", settings.data, "folder with the four gzipped idx files");
  app.add_option("--limit", settings.limit, "training images to use, 0 for all")->check(CLI::Range(0, 1000000));
  app.add_option("--min-accuracy", settings.minimum_accuracy,
                 "percent that the last epoch must reach; 85 when two epochs saw all images, else 0")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--device", device, "where gradients are averaged: cpu, cuda, or sim, the GPU code run by the CPU")
      ->check(CLI::IsMember({"cpu", "cuda", "sim"}));
  app.add_option("--precision", precision,
                 "f16 or bf16: mixed precision, with 32-bit values behind 16-bit weights, activations and gradients")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  app.add_option("--loss-scale", settings.loss_scale, "to begin with, in mixed precision")
      ->check(CLI::Range(1.0, 1e12));
  app.add_option("--checkpoint", settings.checkpoint,
                 "file to write after each epoch, and to go on from if it is there");
  app.add_option("--threads", threads, "ranks as threads of this process, without a launcher")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--no-sync", no_sync, "leave every all_reduce out: the claims must then fail");
  if (const auto code = examples::parse(app, "fashion_mnist", argc, argv)) return *code;
  if (app.count("--min-accuracy") == 0 && settings.epochs >= 2 && settings.limit == 0) settings.minimum_accuracy = 85;
  settings.synchronise = !no_sync;
  settings.precision = fashion_mnist::precision_named(precision);
  settings.label = device == "sim" ? "simulated" : device;
  try {
    const rondo::Device place = device_named(device);
    return (threads > 0 ? train_threads(threads, place, settings) : train_process(place, settings)) ? 0 : 1;
  } catch (const std::exception& error) {
    examples::complain("fashion_mnist", error.what());
    return 1;
  }
}
