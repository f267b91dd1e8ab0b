// SPDX-License-Identifier: Apache-2.0
// Averages of types too narrow for the sums of a node: strips of the message are widened, added up on both levels, and
// divided once, on their way into the result.
#include <algorithm>

#include "comm/hierarchy/thresholds.hpp"
#include "comm/hierarchy/two_level.hpp"
#include "kernels/average.hpp"

namespace rondo::comm {

void TwoLevel::average_widely() {
  const Call narrow = call_;
  const std::size_t element = element_;
  const CollectiveRow& row = row_of(narrow.collective);
  const bool scatters = row.send == Extent::world;
  const bool gets = !row.recv_at_root || team_.rank() == narrow.root;
  const std::size_t blocks = scatters ? static_cast<std::size_t>(team_.size()) : 1;
  call_.dtype = kernels::wide_type_of(narrow.dtype);
  call_.op = ReduceOp::sum;
  element_ = size_of(call_.dtype);
  const std::size_t most = std::max<std::size_t>(threshold::kWidenedBytes / element_ / blocks, 1);
  const std::size_t step = std::min(most, narrow.count), inputs = step * blocks * element_;
  wide_.resize(std::max(wide_.size(), inputs + (scatters ? step * element_ : 0)));
  call_.send = wide_.data();
  call_.recv = wide_.data() + (scatters ? inputs : 0);
  for (const Range strip : kernels::Rounds(narrow.count, step)) {
    widen_strip(narrow, strip, wide_.data());
    call_.count = strip.count;
    run_phases();
    if (gets) {
      kernels::find_divide_wide(narrow.dtype)(static_cast<std::byte*>(narrow.recv) + strip.offset * element, call_.recv,
                                              strip.count, team_.size());
    }
    links_.finish();  // the next strip goes where this one may still be sent from
  }
}

// A strip of every block that is sent.
void TwoLevel::widen_strip(const Call& narrow, Range strip, std::byte* into) const {
  const std::size_t element = size_of(narrow.dtype);
  const bool scatters = row_of(narrow.collective).send == Extent::world;
  const std::size_t blocks = scatters ? static_cast<std::size_t>(team_.size()) : 1;
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto* const from =
        static_cast<const std::byte*>(narrow.send) + (block * narrow.count + strip.offset) * element;
    kernels::find_widen(narrow.dtype)(into + block * strip.count * element_, from, strip.count);
  }
}

}  // namespace rondo::comm
