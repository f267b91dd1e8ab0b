// SPDX-License-Identifier: Apache-2.0
// Lists of hosts as Slurm writes them: "n[07-9,12]-ib0,r[1-2]n[3-4],m3".
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace rondo::runtime {

inline constexpr std::size_t kMostHosts = 65536;

// Hosts in the order of the list: of several brackets the last one counts fastest, and a range's numbers have at least
// as many digits as its first one. No host is written out before it is asked for.
class HostList {
 public:
  // invalid_argument naming `what` and the place when `text` is no such list, or names more than kMostHosts.
  HostList(std::string_view text, std::string_view what);
  std::size_t size() const { return size_; }
  std::string at(std::size_t index) const;

  struct Range {  // of numbers
    unsigned long low = 0, high = 0;
    std::size_t digits = 0;  // at least
    std::size_t count() const { return high - low + 1; }
  };
  struct Part {  // letters, and what stands in brackets behind them; nothing does where there are no ranges
    std::string letters{};
    std::vector<Range> ranges{};
    std::size_t count = 1;
  };
  struct Entry {  // a name with any number of brackets, each of which multiplies it
    std::vector<Part> parts{};
    std::size_t count = 1;
  };

 private:
  std::vector<Entry> entries_;
  std::size_t size_ = 0;
};

}  // namespace rondo::runtime
