// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/timeline.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trainer/arguments.hpp"
#include "trainer/file.hpp"

namespace rondo::trainer {
namespace {

using Clock = StepRecord::Clock;
enum Row : int { kModel, kCommunication, kRows };

// Perfetto names threads by their number alone, without the process: no two ranks have the same.
int thread_of(int rank, Row row) { return rank * kRows + row + 1; }

std::string event(int rank, Row row, const std::string& name, Clock::time_point begin, Clock::time_point end,
                  Clock::time_point zero, const std::string& arguments) {
  const auto microseconds = [](Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); };
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":"{}","ts":{:.3f},"dur":{:.3f},"args":{{{}}}}},)"
                     "\n",
                     rank, thread_of(rank, row), name, microseconds(begin - zero), microseconds(end - begin),
                     arguments);
}
std::string label(int rank, Row row, const char* kind, const std::string& name) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":"{}"}}}},)"
                     "\n",
                     rank, thread_of(rank, row), kind, name);
}

std::string document(std::string events) {
  if (!events.empty()) events.resize(events.size() - 2);  // the last comma
  return "{\"traceEvents\":[\n" + events + "\n]}\n";
}

}  // namespace

std::string Timeline::events(int rank, Clock::time_point zero) const {
  std::string all = label(rank, kModel, "process_name", fmt::format("rank {}", rank));
  all += label(rank, kModel, "thread_name", "model") + label(rank, kCommunication, "thread_name", "communication");
  for (const StepRecord& r : records_) {
    const std::string step = fmt::format("\"step\":{}", r.step);
    all += event(rank, kModel, "forward", r.forward, r.backward, zero, step);
    all += event(rank, kModel, "backward", r.backward, r.finish, zero, step);
    all += event(rank, kModel, "exposed communication", r.finish, r.end, zero, step);
    for (const BucketRecord& b : r.buckets) {
      if (b.started == b.finished) continue;
      all += event(rank, kCommunication, fmt::format("bucket {}", b.index), b.started, b.finished, zero,
                   fmt::format("{},\"bytes\":{},\"submitted\":{:.3f}", step, b.bytes,
                               std::chrono::duration<double, std::micro>(b.submitted - zero).count()));
    }
  }
  return all;
}

std::string Timeline::json(int rank) const {
  if (rank < 0) refuse_argument("Timeline::json", fmt::format("there is no rank {}", rank));
  return document(events(rank, records_.empty() ? Clock::time_point{} : records_.front().forward));
}

void Timeline::write(Communicator& communicator, const std::string& path) const {
  // The clock of a node starts when it boots, so a node's zero is its own. It is the beginning of the first of its
  // ranks to begin: Perfetto drops what is before zero.
  struct Origin {
    Clock::rep zero;
    std::int32_t node;
  };
  const auto begin = records_.empty() ? Clock::time_point::max() : records_.front().forward;
  const Origin mine{begin.time_since_epoch().count(), communicator.node()};
  const auto origins = communicator.all_gather_bytes(std::as_bytes(std::span(&mine, 1)));
  Clock::rep zero = mine.zero;
  for (const auto& bytes : origins) {
    Origin one{};
    std::memcpy(&one, bytes.data(), sizeof one);
    if (one.node == mine.node) zero = std::min(zero, one.zero);
  }
  const std::string mine_alone = events(communicator.rank(), Clock::time_point(Clock::duration(zero)));
  std::string all;
  for (const auto& bytes : communicator.all_gather_bytes(std::as_bytes(std::span(mine_alone))))
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  on_rank_zero(communicator, [&] {
    check_path("Timeline::write", path);
    const std::string text = document(std::move(all));
    replace_file(path, std::as_bytes(std::span(text)));
  });
}

}  // namespace rondo::trainer
