// SPDX-License-Identifier: Apache-2.0
// A file that is there as a whole or not at all, and work of rank 0 whose failure is everybody's.
#pragma once
#include <functional>
#include <span>
#include <string>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// Points at which a crash is tested.
enum class FileStep { opened, half_written, written, synced, renamed };

// Writes beside it, syncs, renames over it and syncs the folder: whoever opens `path` meanwhile, or after a crash,
// finds the old or the new file. Error(system) with the reason.
RONDO_API void replace_file(const std::string& path, std::span<const std::byte> bytes,
                            const std::function<void(FileStep)>& at = {});
RONDO_API std::string read_file(const std::string& path);

// Collective: rank 0 runs `work`, the others wait for it. What it throws is thrown on every rank, elsewhere as an Error
// with rank 0's sentence.
RONDO_API void on_rank_zero(Communicator& communicator, const std::function<void()>& work);

}  // namespace rondo::trainer
