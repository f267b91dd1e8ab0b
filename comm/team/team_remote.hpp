// SPDX-License-Identifier: Apache-2.0
// What the monitor's thread learns of a rank of another node.
#pragma once
#include <optional>

#include "comm/team/team.hpp"

namespace rondo::comm {

struct Team::Remote {
  std::atomic<bool> departed{false}, given_up{false}, lost{false}, unmapped{false};
  std::atomic<std::uint32_t> keeps_apart{0};
  std::atomic<std::uint64_t> aborted{0};  // as RankLine's
  Attendance attendance{};
  mutable std::mutex mutex;
  Signature latest{};  // guarded by it: the latest collective that it is known to have entered
  // The same: as RankLine's, and the steps of messages that it had sent to this rank before.
  std::uint64_t alone_in = 0, steps_before = 0;
  std::atomic<std::uint64_t> steps_sent{0};  // of messages, by this rank to it
  // Guarded by Team::answers_: what it, or a neighbour of its, has said to that question.
  Standing standing{};
  std::uint64_t answered = 0;
  // Of its kernels, guarded by Team::device_calls_: the same; and its messages with this rank.
  Signature on_device{};
  std::optional<Messages> messages{};  // once it leaves
};

}  // namespace rondo::comm
