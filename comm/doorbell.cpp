// SPDX-License-Identifier: Apache-2.0
#include "comm/doorbell.hpp"

#include <sys/eventfd.h>

namespace rondo::comm {

// EAGAIN (a counter at its maximum, or nothing to drain) is as good as success: the bell has rung.
void Doorbells::ring(int local_rank) const { static_cast<void>(eventfd_write(fd(local_rank), 1)); }
void Doorbells::ring_all() const {
  for (int r = 0; r < segment_.local_size(); ++r) ring(r);
}
void Doorbells::drain(int local_rank) const {
  eventfd_t count = 0;
  static_cast<void>(eventfd_read(fd(local_rank), &count));
}

}  // namespace rondo::comm
