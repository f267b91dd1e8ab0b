// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/rondo/page.hpp"

namespace rondo::records {
namespace {

using Ordered = nlohmann::ordered_json;

template <class Visit>
void each_call(const Folder& folder, Visit&& visit) {
  for (const auto& [rank, record] : folder.records)
    for (std::size_t lane = 0; lane < record.communicators.size(); ++lane)
      for (const Call& call : record.communicators[lane].calls) visit(rank, record, lane, call);
}

}  // namespace

// A call that was not over ends where its rank's record was written.
std::string trace_of(const Folder& folder) {
  double first_us = 1e18;
  each_call(folder,
            [&](int, const Record&, std::size_t, const Call& call) { first_us = std::min(first_us, call.begun_us); });
  Ordered events = Ordered::array();
  for (const auto& [rank, record] : folder.records) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"args", {{"name", "rank " + std::to_string(rank) + " on " + record.host}}}});
    for (std::size_t lane = 0; lane < record.communicators.size(); ++lane)
      events.push_back({{"name", "thread_name"},
                        {"ph", "M"},
                        {"pid", rank},
                        {"tid", lane},
                        {"args", {{"name", record.communicators[lane].name}}}});
  }
  each_call(folder, [&](int rank, const Record& record, std::size_t lane, const Call& call) {
    const double end_us = std::max(call.ended_us.value_or(record.written_us), call.begun_us);
    events.push_back({{"name", call.collective},
                      {"cat", call.ended_us ? "call" : "unfinished"},
                      {"ph", "X"},
                      {"ts", call.begun_us - first_us},
                      {"dur", end_us - call.begun_us},
                      {"pid", rank},
                      {"tid", lane},
                      {"args",
                       {{"sequence", call.sequence},
                        {"count", call.count},
                        {"dtype", call.dtype},
                        {"algorithm", call.algorithm},
                        {"over", call.ended_us.has_value()}}}});
  });
  const Ordered trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return trace.dump(1, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace rondo::records
