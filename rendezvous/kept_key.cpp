// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kept_key.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <mutex>
#include <vector>

#include "comm/base/fork_pause.hpp"
#include "comm/base/system_error.hpp"
#include "rendezvous/crypto.hpp"

namespace rondo::rendezvous {
namespace {

// Pages stay the process's: a job has a few keys, and one more for each connection that is being made.
class KeyPages {
 public:
  KeptKey::Bytes* take() {
    const ForkPause pause;  // a child would find the lock held
    const std::lock_guard lock(mutex_);
    if (free_.empty()) add_page();
    KeptKey::Bytes* const place = free_.back();
    free_.pop_back();
    return place;
  }
  void give_back(KeptKey::Bytes* place) {
    const ForkPause pause;
    const std::lock_guard lock(mutex_);
    free_.push_back(place);  // there is room: it came from here
  }

 private:
  void add_page() {
    constexpr std::size_t kPageBytes = 64 << 10;  // of any page size
    void* const page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw_errno("cannot have memory for keys");
    if (::madvise(page, kPageBytes, MADV_DONTDUMP) != 0) {
      const int reason = errno;
      ::munmap(page, kPageBytes);
      errno = reason;
      throw_errno("cannot keep memory for keys out of core dumps");
    }
    constexpr std::size_t kKeys = kPageBytes / sizeof(KeptKey::Bytes);
    total_ += kKeys;
    free_.reserve(total_);
    for (std::size_t i = 0; i < kKeys; ++i) free_.push_back(static_cast<KeptKey::Bytes*>(page) + i);
  }

  std::mutex mutex_;
  std::vector<KeptKey::Bytes*> free_;
  std::size_t total_ = 0;
};

KeyPages& key_pages() {
  static KeyPages& pages = *new KeyPages;  // keys of statics may go later
  return pages;
}

}  // namespace

KeptKey::KeptKey() : bytes_(key_pages().take()) { bytes_->fill(std::byte{0}); }

KeptKey::~KeptKey() {
  if (bytes_ == nullptr) return;
  wipe(*bytes_);
  key_pages().give_back(bytes_);
}

}  // namespace rondo::rendezvous
