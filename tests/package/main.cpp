// SPDX-License-Identifier: Apache-2.0
// Random sequences of collectives on random groups against a naive reference, ranks as threads and as processes.
#include <charconv>
#include <cstdio>
#include <exception>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

#include "contract.hpp"
#include "sequence.hpp"

namespace {

struct Flags {
  std::string mode = "both";
  int first_world = 1, last_world = 9, steps = 200;
  std::uint64_t seed = std::random_device{}();
};

template <class Number>
bool parse(std::string_view text, Number& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

std::optional<Flags> parse_flags(const std::vector<std::string_view>& words) {
  Flags flags;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    const std::string_view name = words[i], value = words[i + 1];
    bool good = false;
    if (name == "--mode") {
      flags.mode = value;
      good = value == "contract" || value == "threads" || value == "processes" || value == "both";
    } else if (name == "--worlds") {
      const auto dash = value.find('-');
      good = parse(value.substr(0, dash), flags.first_world) &&
             parse(dash == value.npos ? value : value.substr(dash + 1), flags.last_world);
    } else if (name == "--steps") {
      good = parse(value, flags.steps);
    } else if (name == "--seed") {
      good = parse(value, flags.seed);
    }
    if (!good) return std::nullopt;
  }
  return words.size() % 2 == 0 ? std::optional(flags) : std::nullopt;
}

int run_processes(int world_size, const Flags& flags) {
  return rondo::spawn(world_size, [&](rondo::Communicator& world) {
    consumer::run_sequence(world, flags.seed + static_cast<std::uint64_t>(world.world_size()), flags.steps);
  });
}

int run_threads(int world_size, const Flags& flags) {
  std::vector<rondo::Communicator> ranks = rondo::Communicator::local(world_size);
  std::vector<std::string> errors(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          consumer::run_sequence(ranks[i], flags.seed + static_cast<std::uint64_t>(world_size), flags.steps);
        } catch (const std::exception& error) {
          errors[i] = error.what();
          ranks[i].abort();
        }
      });
    }
  }
  int failed = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (errors[i].empty()) continue;
    std::fprintf(stderr, "rank %zu: %s\n", i, errors[i].c_str());
    failed = 1;
  }
  return failed;
}

int run(const Flags& flags) {
  if (flags.mode == "contract") {
    consumer::check_contract();
    return 0;
  }
  // Processes first: a process with threads should not fork.
  for (const char* mode : {"processes", "threads"}) {
    if (flags.mode != "both" && flags.mode != mode) continue;
    for (int size = flags.first_world; size <= flags.last_world; ++size) {
      const int code = mode == std::string_view("threads") ? run_threads(size, flags) : run_processes(size, flags);
      if (code == 0) continue;
      std::fprintf(stderr, "replay: --mode %s --worlds %d --steps %d --seed %llu\n", mode, size, flags.steps,
                   static_cast<unsigned long long>(flags.seed));
      return code;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto flags = parse_flags({argv + 1, argv + argc});
  if (!flags) {
    std::fprintf(stderr, "usage: %s [--mode contract|threads|processes|both] [--worlds A-B] [--steps N] [--seed N]\n",
                 argv[0]);
    return 2;
  }
  std::printf("%s, worlds %d-%d, %d steps, seed %llu\n", flags->mode.c_str(), flags->first_world, flags->last_world,
              flags->steps, static_cast<unsigned long long>(flags->seed));
  std::fflush(stdout);
  try {
    return run(*flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
