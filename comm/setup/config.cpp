// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/config.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "comm/base/log_level.hpp"
#include "comm/call/algorithms.hpp"
#include "comm/device/launch/device_tuner.hpp"
#include "comm/setup/encryption_choice.hpp"
#include "comm/setup/ranges.hpp"
#include "comm/transport/transport.hpp"

namespace rondo::comm {
namespace {

// What is written there is written when something has failed, which would be late to find out. A folder that is not
// there is made, for this user alone; its parents are not, as they may be a mistake in the name.
void check_folder(const char* variable, const std::string& path) {
  constexpr mode_t kOfThisUser = 0700;
  int reason = ::mkdir(path.c_str(), kOfThisUser) == 0 ? 0 : errno;  // another rank may have been first
  if (std::filesystem::is_directory(std::filesystem::status(path))) {
    reason = ::access(path.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  }
  if (reason == 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}={} is not a folder that this process may write to, and cannot be made one: {}", variable,
                          path, std::strerror(reason)));
}

}  // namespace

Config Config::from_environment(const Transports& known) {
  log::check_level();
  Config config;
  config.transport = env("RONDO_TRANSPORT").value_or("");
  check_transport_name(config.transport, known);
  const std::string rseq = env("RONDO_RSEQ").value_or("leave");
  if (rseq != "leave" && rseq != "keep") {
    throw Error(ErrorCode::invalid_argument, fmt::format("RONDO_RSEQ={} is not leave (the default) or keep", rseq));
  }
  config.leaves_rseq = rseq == "leave";
  config.algorithm = env("RONDO_ALGORITHM").value_or("");
  if (!config.algorithm.empty()) check_algorithm_name(config.algorithm);
  config.protocol = env("RONDO_PROTOCOL").value_or("");
  if (!config.protocol.empty()) device::check_protocol_name(config.protocol);
  const auto number = [](const char* name, auto& field, const auto& range) {
    if (const auto value = env_number(name, static_cast<long>(range.low), static_cast<long>(range.high)))
      field = static_cast<std::remove_reference_t<decltype(field)>>(*value);
  };
  constexpr Range<long> kPolls{0, 1'000'000'000};
  number("RONDO_SLICE_BYTES", config.slice_bytes, kSliceBytes);
  number("RONDO_FIFO_SLOTS", config.slots, kFifoSlots);
  number("RONDO_SEGMENT_BYTES", config.segment_bytes, kSegmentBytes);
  number("RONDO_SPIN", config.spin, kPolls);
  number("RONDO_YIELDS", config.yields, kPolls);
  number("RONDO_RECORD_FD", config.record_fd, Range<long>{0, 1 << 24});
  config.link_patience_ms = static_cast<std::uint32_t>(given_link_patience().count());
  config.encrypt = encryption_is_wanted();
  config.slice_bytes = (config.slice_bytes + kSliceUnit - 1) / kSliceUnit * kSliceUnit;
  if (const auto path = env("RONDO_TUNING")) config.tuning = read_tuning(*path);
  config.flight_recorder = env("RONDO_FLIGHT_RECORDER").value_or("");
  if (!config.flight_recorder.empty()) check_folder("RONDO_FLIGHT_RECORDER", config.flight_recorder);
  return config;
}

}  // namespace rondo::comm
