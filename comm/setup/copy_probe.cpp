// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/copy_probe.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "comm/transport/handshake.hpp"
#include "comm/transport/process_memory.hpp"

namespace rondo::comm {

CopyProbe::CopyProbe() { fill_random(std::as_writable_bytes(std::span(&words_.held, 1))); }

void CopyProbe::describe(Card& own) const {
  own.probe = reinterpret_cast<std::uintptr_t>(&words_);
  own.probe_word = words_.held;
}

std::string CopyProbe::obstacle(const Card& own, int own_rank, const Card& theirs, int rank) const {
  if (theirs.pid_namespace != own.pid_namespace || theirs.pid_namespace.empty())
    return fmt::format("ranks {} and {} do not see each other's processes", own_rank, rank);
  std::uint64_t word = 0;
  int fault = copy_from_process(theirs.pid, theirs.probe + offsetof(Words, held), &word, sizeof word);
  if (fault == 0 && word != theirs.probe_word) fault = ESRCH;
  if (fault == 0)
    fault = copy_to_process(theirs.pid, theirs.probe + offsetof(Words, written), &words_.held, sizeof words_.held);
  if (fault == 0) return {};
  return fmt::format("rank {} cannot reach the memory of rank {}: {}", own_rank, rank, std::strerror(fault));
}

}  // namespace rondo::comm
