// SPDX-License-Identifier: Apache-2.0
#include "comm/base/limits.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include <rondo/error.hpp>

namespace rondo {
namespace {

// Of the descriptors below `limit`: poll marks those that are not open, with no /proc.
std::size_t open_descriptors(rlim_t limit) {
  std::vector<pollfd> each(limit);
  for (std::size_t fd = 0; fd < each.size(); ++fd) each[fd].fd = static_cast<int>(fd);
  if (::poll(each.data(), each.size(), 0) < 0) return 0;
  const auto is_closed = [](const pollfd& one) { return (one.revents & POLLNVAL) != 0; };
  return each.size() - static_cast<std::size_t>(std::count_if(each.begin(), each.end(), is_closed));
}

std::string number_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur);
}

}  // namespace

void reserve_descriptors(std::size_t count, std::string_view who) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  constexpr std::size_t kFew = 256;
  if (limit.rlim_cur >= 16 * std::max(count, kFew)) return;  // far from any limit: not worth a look
  constexpr rlim_t kSpare = 64;                              // for what comes and goes meanwhile
  const rlim_t needed = open_descriptors(limit.rlim_cur) + count;
  if (needed + kSpare <= limit.rlim_cur) return;
  if (needed > limit.rlim_max) {
    throw Error(ErrorCode::system, fmt::format("{} needs {} open files and this process may have {}: raise the hard "
                                               "limit (ulimit -Hn, LimitNOFILE, --ulimit nofile) to {} or more",
                                               who, needed, limit.rlim_max, needed));
  }
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, needed + kSpare));
  ::setrlimit(RLIMIT_NOFILE, &limit);  // what it did not grant shows where a descriptor is missing
}

std::size_t descriptors_for_strangers(std::size_t reserved, std::size_t most) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= 16 * std::max(reserved, most)) return most;
  const std::size_t taken = open_descriptors(limit.rlim_cur) + reserved;
  const std::size_t left = limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
  return std::clamp(left / 4, kFewestStrangers, most);
}

bool raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::string remedy_of(int error) {
  switch (error) {
    case EMFILE:
      return fmt::format("; this process may have {} open files: raise the limit (ulimit -n)",
                         number_of(RLIMIT_NOFILE));
    case ENFILE:
      return "; the machine has too many open files: raise fs.file-max";
    case ENOMEM:
      return fmt::format(
          "; see the limits of this process's memory (ulimit -v is {}, ulimit -l {}) and of its control "
          "group",
          number_of(RLIMIT_AS), number_of(RLIMIT_MEMLOCK));
    case EFBIG:
      return fmt::format("; raise the limit of a file's size (ulimit -f), which is {} bytes", number_of(RLIMIT_FSIZE));
    case ENOSYS:
      return "; the kernel does not have this call, or a filter (seccomp) denies it";
    default:
      return {};
  }
}

std::string and_others(int left_out) { return left_out > 0 ? fmt::format(" and {} others", left_out) : ""; }

bool OncePerSecond::now(int& left_out) {
  const std::lock_guard lock(mutex_);
  const auto time = std::chrono::steady_clock::now();
  if (time < next_) {
    ++left_out_;
    return false;
  }
  next_ = time + std::chrono::seconds(1);
  left_out = std::exchange(left_out_, 0);
  return true;
}

}  // namespace rondo
