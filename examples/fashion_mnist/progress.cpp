// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/progress.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

namespace fashion_mnist {
namespace {

// The optimizer's numbers as tensors: texts would have to keep all bits of a double.
struct Numbers {
  std::vector<double> values;

  Numbers(const Progress& progress, const rondo::trainer::LossScaler& scaler)
      : values{static_cast<double>(progress.epochs), progress.first_loss, progress.loss, scaler.scale(),
               static_cast<double>(scaler.good_steps())} {}
  void to(Progress& progress, rondo::trainer::LossScaler& scaler) const {
    progress = {.epochs = static_cast<int>(values[0]), .first_loss = values[1], .loss = values[2]};
    scaler.restore(values[3], static_cast<std::size_t>(values[4]));
  }
};

template <class Visit>
void for_each_tensor(Network& network, Numbers& numbers, Visit&& visit) {
  for (Tensor& t : network.tensors()) {
    visit(rondo::trainer::parameter(t.name, std::span(t.values)));
    visit(rondo::trainer::parameter(std::string(t.name).append(".velocity"), std::span(t.velocity)));
  }
  visit(rondo::trainer::parameter("progress", std::span(numbers.values)));
}

}  // namespace

void save(rondo::Communicator& host, const std::string& path, const std::string& run, const Progress& progress,
          Network& network, const rondo::trainer::LossScaler& scaler) {
  rondo::trainer::Checkpoint checkpoint;
  Numbers numbers(progress, scaler);
  if (host.rank() == 0) for_each_tensor(network, numbers, [&](const auto& tensor) { checkpoint.put(tensor); });
  checkpoint.texts["run"] = run;
  save_once(host, path, checkpoint);
}

std::optional<Progress> resume(rondo::Communicator& host, const std::string& path, const std::string& run,
                               Network& network, rondo::trainer::LossScaler& scaler) {
  std::int32_t there = host.rank() == 0 && std::filesystem::exists(path);
  host.broadcast(std::span(&there, 1), 0);
  if (there == 0) return std::nullopt;
  const auto checkpoint = rondo::trainer::load(host, path);
  const auto found = checkpoint.texts.find("run");
  if (found == checkpoint.texts.end() || found->second != run) {
    throw std::runtime_error(fmt::format("{} is of another run ({}; this one: {}); remove it, or name another file",
                                         path, found == checkpoint.texts.end() ? "unknown" : found->second, run));
  }
  Progress progress;
  Numbers numbers(progress, scaler);
  for_each_tensor(network, numbers, [&](const auto& tensor) { checkpoint.get(tensor); });
  numbers.to(progress, scaler);
  network.round_values();
  return progress;
}

}  // namespace fashion_mnist
