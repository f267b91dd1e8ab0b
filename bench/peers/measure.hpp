// SPDX-License-Identifier: Apache-2.0
// Times one library's collectives, the same way for every library. `iterations` calls back to back, a stamp before and
// after each on every rank. The time of iteration i is the longest over the ranks (end - begin). That of a call in a
// row is the whole loop's, stamps included, by its iterations.
// Calls of rooted collectives would run ahead of one another, so before each of those the ranks line up in the meeting
// (not timed; with a core each they begin at one time by the clock), and its time is last end - first begin;
// broadcast's begins at the root. They are not in a row: 0. `waiting` is no collective: rank 0 comes to a barrier a
// second late, and the time is the CPU time of the rank that waits most busily. Rank 0 prints a line per cell:
//   cell,collective,np,bytes,iterations,median_us,p99_us,min_us,mean_us,in_a_row_us,BEFORE:AFTER,ok|WRONG,histogram
// BEFORE and AFTER: how far apart the cores were then, in ns (Meeting::probe).
// The histogram holds every iteration, "bucket:count" with bucket = floor(16 log2(ns)): p99 is pooled over launches.
#pragma once
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "arguments.hpp"
#include "data.hpp"
#include "meeting.hpp"

namespace rondo::peers {

constexpr double kBucketsPerOctave = 16;
constexpr std::chrono::milliseconds kTurn{5};
constexpr double kSlowSeconds = 1;  // no cell is timed for longer, but one call

// Between the cores, around the timed calls.
struct Distance {
  double before_ns = 0, after_ns = 0;
};

class Runner {
 public:
  Runner(Library& library, const Arguments& arguments, int rank, int np)
      : library_(library),
        rank_(rank),
        np_(np),
        meeting_(arguments.needed("meeting"), rank, np, waits_of(arguments.text("waits", "spin")),
                 [&library] { library.progress(); }),
        budget_s_(static_cast<double>(arguments.number("budget-ms", 25)) * 1e-3),
        least_(static_cast<std::size_t>(arguments.number("min-iterations", 3))),
        most_(std::min(kMostIterations, static_cast<std::size_t>(arguments.number("max-iterations", 2000)))),
        offset_(static_cast<std::size_t>(arguments.number("offset", 0))),
        near_ns_(static_cast<double>(arguments.number("near-ns", 0))),
        far_ns_(static_cast<double>(arguments.number("far-ns", 0))),
        patience_(arguments.number("patience", 0)),
        cells_(arguments.list("cells")) {}

  // The exit status: 1 when a result was wrong.
  int run() {
    for (const std::string& text : cells_) {
      const std::size_t colon = text.find(':');
      const std::string name = text.substr(0, colon);
      if (name == "waiting") {
        measure_waiting();
      } else {
        const std::string bytes = colon == std::string::npos ? "" : text.substr(colon + 1);
        measure(cell_of(name, static_cast<std::size_t>(Arguments::number_in(bytes, "--cells " + text))));
      }
    }
    return failed_ ? 1 : 0;
  }

 private:
  Cell cell_of(const std::string& name, std::size_t bytes) const {
    Cell cell = cell_named(name);
    cell.count = bytes / 4, cell.rank = rank_, cell.np = np_;
    if (cell.has_blocks()) cell.count = cell.block() * static_cast<std::size_t>(np_);
    return cell;
  }

  void measure(const Cell& cell) {
    if (cell.count == 0 && !cell.is(Collective::barrier)) return;
    reserve(cell.count);
    std::fill_n(in_, cell.count, kPoison);
    library_.prepare(cell, input_of(cell), out_);
    bool right = check(cell, 1);
    const std::size_t iterations = calibrate(cell);
    const double before_ns = near_if_soon();
    loop(cell, iterations);
    const Distance distance{before_ns, meeting_.probe()};
    const std::string row = rank_ == 0 ? summary(cell, iterations, distance) : "";
    meeting_.wait();
    right = check(cell, 2) && right;
    failed_ |= !right;
    if (rank_ == 0) print(cell, row, right);
    library_.finish();
    meeting_.wait();
  }

  // The same two buffers for all cells, larger ones when a cell needs them: fresh pages would take as long as the
  // calls.
  void reserve(std::size_t count) {
    if (in_ != nullptr && count <= capacity_) return;
    library_.release();
    in_ = library_.allocate(count + offset_) + offset_;
    out_ = library_.allocate(count + offset_) + offset_;
    capacity_ = count;
  }

  float* input_of(const Cell& cell) const {
    if (!cell.in_place) return in_;
    return cell.gathers() ? out_ + cell.own_offset() : out_;
  }

  bool check(const Cell& cell, std::uint32_t seed) {
    load(cell, input_of(cell), out_, seed);
    library_.load();
    meeting_.wait();
    library_.run();
    const bool right = is_right(cell, library_.result(), seed);
    return meeting_.max_over_ranks(right ? 0 : 1) == 0;
  }

  // Seconds of the whole loop, on this rank.
  double loop(const Cell& cell, std::size_t iterations) {
    Stamp* stamp = meeting_.stamps(rank_);
    meeting_.wait();
    for (std::size_t i = 0; i < iterations; ++i) {
      if (cell.rooted()) meeting_.line_up();
      stamp[i].begin = now();
      library_.run();
      stamp[i].end = now();
    }
    return stamp[iterations - 1].end - stamp[0].begin;
  }

  // Tells how far apart the cores are. Where they are not near it waits a little: they often come near again.
  double near_if_soon() {
    const auto is_elsewhere = [this](double ns) { return ns >= far_ns_ || (ns > 0 && ns < near_ns_); };
    double ns = meeting_.probe();
    for (; is_elsewhere(ns) && patience_ > 0; --patience_) {
      std::this_thread::sleep_for(kTurn);
      ns = meeting_.probe();
    }
    return ns;
  }

  // As many calls as the budget allows, the same on every rank.
  std::size_t calibrate(const Cell& cell) {
    double seconds = meeting_.max_over_ranks(loop(cell, 1));
    const auto affordable = [&](double budget) { return static_cast<std::size_t>(budget / std::max(seconds, 1e-9)); };
    if (const std::size_t trial = std::min<std::size_t>(affordable(budget_s_ / 4), 200); trial > 2)
      seconds = meeting_.max_over_ranks(loop(cell, trial) / static_cast<double>(trial));
    const std::size_t least = std::clamp<std::size_t>(affordable(kSlowSeconds), 1, std::max<std::size_t>(least_, 1));
    return std::clamp(affordable(budget_s_), least, most_);
  }

  double seconds_of(const Cell& cell, std::size_t i) {
    double longest = 0, first = meeting_.stamps(0)[i].begin, last = 0;
    for (int rank = 0; rank < np_; ++rank) {
      const Stamp stamp = meeting_.stamps(rank)[i];
      longest = std::max(longest, stamp.end - stamp.begin);
      if (!cell.is(Collective::broadcast)) first = std::min(first, stamp.begin);
      last = std::max(last, stamp.end);
    }
    return cell.rooted() ? last - first : longest;
  }

  std::string summary(const Cell& cell, std::size_t iterations, Distance distance) {
    std::vector<double> us(iterations);
    for (std::size_t i = 0; i < iterations; ++i) us[i] = seconds_of(cell, i) * 1e6;
    const double loop_us = cell.rooted() ? 0 : meeting_.seconds_of_all(iterations) * 1e6;
    return row_of(cell.name(), cell.count * 4, us, loop_us, distance);
  }

  std::string row_of(const std::string& name, std::size_t bytes, std::vector<double> us, double loop_us,
                     Distance distance) const {
    std::sort(us.begin(), us.end());
    const std::size_t n = us.size();
    std::map<int, int> histogram;
    double sum = 0;
    for (const double t : us) {
      sum += t;
      ++histogram[static_cast<int>(std::floor(kBucketsPerOctave * std::log2(std::max(t * 1e3, 1.0))))];
    }
    const double median = (us[(n - 1) / 2] + us[n / 2]) / 2, p99 = us[(n * 99 + 99) / 100 - 1];
    char row[256];
    std::snprintf(row, sizeof row, "cell,%s,%d,%zu,%zu,%.3f,%.3f,%.3f,%.3f,%.3f,%.0f:%.0f,", name.c_str(), np_, bytes,
                  n, median, p99, us[0], sum / static_cast<double>(n), loop_us / static_cast<double>(n),
                  distance.before_ns, distance.after_ns);
    std::string buckets;
    for (const auto& [bucket, count] : histogram)
      buckets += (buckets.empty() ? "" : " ") + std::to_string(bucket) + ":" + std::to_string(count);
    return std::string(row) + "%s," + buckets;
  }

  void print(const Cell& cell, std::string row, bool right) const {
    row.replace(row.find("%s"), 2, right ? "ok" : "WRONG");
    std::printf("%s\n", row.c_str());
    std::fflush(stdout);
    if (!right)
      std::fprintf(stderr, "wrong result: %s of %zu bytes, np %d\n", cell.name().c_str(), cell.count * 4, np_);
  }

  void measure_waiting() {
    const Cell cell{.collective = Collective::barrier, .count = 0, .rank = rank_, .np = np_};
    library_.prepare(cell, nullptr, nullptr);
    library_.run();
    meeting_.wait();
    const double cpu = cpu_seconds();
    if (rank_ == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    library_.run();
    const double used = meeting_.max_over_ranks(rank_ == 0 ? 0 : cpu_seconds() - cpu);
    if (rank_ == 0) print(cell, row_of("waiting", 0, {used * 1e6}, 0, {}), true);
    library_.finish();
    meeting_.wait();
  }

  Library& library_;
  int rank_, np_;
  Meeting meeting_;
  double budget_s_;
  std::size_t least_, most_, offset_;
  double near_ns_, far_ns_;  // what a flag takes between near cores, and from where on they are far
  long patience_;            // turns that this launch may wait for near cores, in all
  std::vector<std::string> cells_;
  float *in_ = nullptr, *out_ = nullptr;
  std::size_t capacity_ = 0;  // floats of each
  bool failed_ = false;
};

}  // namespace rondo::peers
