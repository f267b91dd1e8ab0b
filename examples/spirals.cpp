// SPDX-License-Identifier: Apache-2.0
// Training with libtorch on one process or many: docs/training.md explains it part by part.
//   rondorun --nproc-per-node 2 spirals --checkpoint spirals.safetensors --timeline steps.json
#include <ATen/autocast_mode.h>
#include <torch/torch.h>
#include <rondo/rondo.hpp>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <rondo/torch.hpp>
#include <rondo/trainer.hpp>
#include <rondo/trainer/drift.hpp>
#include <rondo/trainer/gradients.hpp>
#include <rondo/trainer/timeline.hpp>
#include <span>
#include <string>
#include <vector>

#include "examples/command_line.hpp"

namespace {

using rondo::trainer::DistributedSampler;
using rondo::trainer::Tail;

struct Settings {
  int epochs = 30;
  std::size_t points = 1001;
  std::size_t batch = 32;  // of a rank
  std::string checkpoint{}, timeline{};
  bool half = false, uneven = false;
};

struct Samples {
  torch::Tensor points, labels;
};

// Two spirals, one inside the other.
Samples spirals(std::int64_t count) {
  const torch::Tensor index = torch::arange(count);
  const torch::Tensor labels = index % 2;
  const torch::Tensor radius = (index + 10).to(torch::kFloat) / static_cast<double>(count + 10);
  const torch::Tensor angle = radius * 9 + labels * M_PI;
  return {torch::stack({radius * torch::cos(angle), radius * torch::sin(angle)}, 1), labels};
}

torch::nn::Sequential make_net() {
  using namespace torch::nn;
  return Sequential(Linear(2, 64), BatchNorm1d(64), ReLU(), Linear(64, 64), BatchNorm1d(64), ReLU(), Linear(64, 2));
}

Samples take(const Samples& all, std::span<const std::size_t> indices) {
  const std::vector<std::int64_t> wide(indices.begin(), indices.end());
  const torch::Tensor chosen = torch::tensor(wide);
  return {all.points.index_select(0, chosen), all.labels.index_select(0, chosen)};
}

// While one lives, libtorch multiplies matrices in bf16.
class HalfPrecision {
 public:
  explicit HalfPrecision(bool on) { set(on); }
  HalfPrecision(const HalfPrecision&) = delete;
  HalfPrecision& operator=(const HalfPrecision&) = delete;
  ~HalfPrecision() {
    at::autocast::clear_cache();
    set(false);
  }

 private:
  static void set(bool on) {
#if TORCH_VERSION_MAJOR >= 2
    at::autocast::set_autocast_enabled(at::kCPU, on);
#else
    at::autocast::set_cpu_enabled(on);
#endif
  }
};

// Percent of all points, each counted once whatever the number of ranks.
double accuracy(rondo::Communicator& comm, torch::nn::Sequential& net, const Samples& all) {
  const torch::NoGradGuard guard;
  net->eval();
  const DistributedSampler sampler(static_cast<std::size_t>(all.labels.size(0)), comm.rank(), comm.world_size(),
                                   {.shuffle = false, .tail = Tail::exact});
  const Samples mine = take(all, sampler.indices());
  std::array<std::int64_t, 2> right_and_all{
      net->forward(mine.points).argmax(1).eq(mine.labels).sum().item<std::int64_t>(), mine.labels.size(0)};
  comm.all_reduce(std::span(right_and_all), rondo::ReduceOp::sum);
  net->train();
  return 100.0 * static_cast<double>(right_and_all[0]) / static_cast<double>(right_and_all[1]);
}

void show_progress(int epoch, int epochs, double loss) {
  const int done = 40 * epoch / epochs;
  std::printf("\r[%s%s] epoch %d of %d, loss %.4f", std::string(static_cast<std::size_t>(done), '#').c_str(),
              std::string(static_cast<std::size_t>(40 - done), ' ').c_str(), epoch, epochs, loss);
  if (epoch == epochs) std::printf("\n");
  std::fflush(stdout);
}

void train(rondo::Communicator& comm, const Settings& settings) {
  torch::manual_seed(0);
  torch::nn::Sequential net = make_net();
  rondo::DistributedDataParallel model(comm, net);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  int epoch = 0;
  if (!settings.checkpoint.empty() && std::filesystem::exists(settings.checkpoint)) {
    const rondo::Extras extras = rondo::load(comm, settings.checkpoint, *net, optimizer);
    epoch = std::stoi(extras.texts.at("epoch"));
  }

  const Samples all = spirals(static_cast<std::int64_t>(settings.points));
  DistributedSampler sampler(settings.points, comm.rank(), comm.world_size(), {.tail = Tail::exact});
  rondo::trainer::LossScaler scaler;
  rondo::trainer::Timeline timeline;
  const auto step = [&] {
    if (!settings.half || scaler.unscale(model.parameters())) optimizer.step();
    timeline.add(model.synchronizer().last_step());
    optimizer.zero_grad();
  };
  while (epoch < settings.epochs) {
    sampler.set_epoch(static_cast<std::uint64_t>(epoch));
    std::vector<std::size_t> indices = sampler.indices();
    if (settings.uneven && comm.rank() != 0) indices.resize(indices.size() * 3 / 4);
    double loss_sum = 0;
    for (std::size_t first = 0; first < indices.size(); first += settings.batch) {
      const Samples batch =
          take(all, std::span(indices).subspan(first, std::min(settings.batch, indices.size() - first)));
      model.begin_forward(first / settings.batch);
      torch::Tensor output;
      {
        const HalfPrecision half(settings.half);
        output = model->forward(batch.points);
      }
      const torch::Tensor loss = torch::cross_entropy_loss(output.to(torch::kFloat), batch.labels);
      (settings.half ? loss * scaler.scale() : loss).backward();
      step();
      loss_sum += loss.item<double>() * static_cast<double>(batch.labels.size(0));
    }
    while (model.join_step()) step();

    ++epoch;
    comm.all_reduce(std::span(&loss_sum, 1), rondo::ReduceOp::sum);
    if (comm.rank() == 0) show_progress(epoch, settings.epochs, loss_sum / static_cast<double>(settings.points));
    if (!settings.checkpoint.empty()) {
      rondo::save(comm, settings.checkpoint, *net, optimizer, {.texts = {{"epoch", std::to_string(epoch)}}});
    }
  }

  rondo::trainer::DriftCheck(comm, 1).check(model.kept_equal());
  if (!settings.timeline.empty()) timeline.write(comm, settings.timeline);
  const double percent = accuracy(comm, net, all);
  if (comm.rank() == 0) std::printf("result: ranks %d, accuracy %.2f\n", comm.world_size(), percent);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Two spirals told apart by a small net.");
  app.add_option("--epochs", settings.epochs, "after which it ends")->check(CLI::Range(1, 1000000));
  app.add_option("--points", settings.points, "of both spirals")->check(CLI::Range(100, 1000000));
  app.add_option("--batch", settings.batch, "points of a rank in a step")->check(CLI::Range(2, 1000000));
  app.add_option("--checkpoint", settings.checkpoint, "file to go on from, written after every epoch");
  app.add_option("--timeline", settings.timeline, "file for ui.perfetto.dev");
  app.add_flag("--half", settings.half, "multiply matrices in bf16");
  app.add_flag("--uneven", settings.uneven, "ranks other than 0 lose a quarter of their points");
  if (const auto code = examples::parse(app, "spirals", argc, argv)) return *code;
  try {
    auto comm = rondo::Communicator::from_environment();
    train(comm, settings);
    return 0;
  } catch (const std::exception& error) {
    examples::complain("spirals", error.what());
    return 1;
  }
}
