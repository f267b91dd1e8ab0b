// SPDX-License-Identifier: Apache-2.0
// A file that is there as a whole or not at all, and work of rank 0 whose failure is everybody's.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

// Points at which a crash is tested.
enum class FileStep { opened, half_written, written, synced, renamed };

// Writes the parts beside it, syncs, renames over it and syncs the folder: whoever opens `path` meanwhile, or after a
// crash, finds the old or the new file; of several writers at one time, in any process, the last one's. Error(system)
// with the reason; then nothing of the new one stays. What a crash has left goes with the next attempt.
RONDO_API void replace_file(const std::string& path, std::span<const std::span<const std::byte>> parts,
                            const std::function<void(FileStep)>& at = {});
inline void replace_file(const std::string& path, std::span<const std::byte> bytes,
                         const std::function<void(FileStep)>& at = {}) {
  replace_file(path, std::span<const std::span<const std::byte>>(&bytes, 1), at);
}

// A file that is read from its beginning, in pieces. Error(system).
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();
  std::uint64_t bytes() const { return bytes_; }  // when it was opened
  void read(std::span<std::byte> to);             // all of them, or an error

 private:
  std::string path_;
  int fd_;
  std::uint64_t bytes_ = 0;
};

// Collective: rank 0 runs `work`, the others wait for it. What it throws is thrown on every rank, elsewhere as an Error
// with rank 0's sentence and its code (of another exception: system).
RONDO_API void on_rank_zero(Communicator& communicator, const std::function<void()>& work);

}  // namespace rondo::trainer
