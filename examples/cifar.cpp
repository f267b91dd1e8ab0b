// SPDX-License-Identifier: Apache-2.0
// The ConvNet of the well-known tutorials of distributed training, in libtorch, data-parallel: on CIFAR-10, or on
// Fashion-MNIST in CIFAR-10's format.   rondorun --nproc-per-node 2 cifar
#include <CLI/CLI.hpp>
#include <exception>
#include <rondo/rondo.hpp>

#include "examples/cifar/training.hpp"
#include "examples/command_line.hpp"
#include "examples/fashion_mnist/dataset.hpp"

namespace {

cifar::Dataset fashion(const std::string& folder, const std::string& prefix) {
  const auto data = fashion_mnist::load(folder, prefix, 0);
  return cifar::in_colour(data.pixels, data.labels, 28);
}

}  // namespace

int main(int argc, char** argv) {
  cifar::Settings settings;
  std::string folder, grey = "/usr/share/datasets/fashion-mnist";
  CLI::App app("Trains the tutorials' ConvNet with libtorch, one process per rank.");
  app.add_option("--data", folder, "folder of CIFAR-10's binary version; without it: Fashion-MNIST");
  app.add_option("--fashion-mnist", grey, "folder with the four gzipped idx files");
  app.add_option("--epochs", settings.epochs, "passes over the training images")->check(CLI::Range(1, 1000000));
  app.add_option("--batch", settings.batch, "images of a rank in one step")->check(CLI::Range(1, 1000000));
  app.add_option("--lr", settings.learning_rate, "learning rate")->check(CLI::Range(0.0, 1000.0));
  app.add_option("--limit", settings.limit, "training images to use, 0 for all")->check(CLI::Range(0, 1000000));
  app.add_option("--min-accuracy", settings.minimum_accuracy, "percent of the test images that must come out right")
      ->check(CLI::Range(0.0, 100.0));
  if (const auto code = examples::parse(app, "cifar", argc, argv)) return *code;
  try {
    auto communicator = rondo::Communicator::from_environment();
    const auto training = folder.empty() ? fashion(grey, "train") : cifar::load_training(folder);
    const auto test = folder.empty() ? fashion(grey, "t10k") : cifar::load_test(folder);
    return cifar::train(communicator, training, test, settings) ? 0 : 1;
  } catch (const std::exception& error) {
    examples::complain("cifar", error.what());
    return 1;
  }
}
