// SPDX-License-Identifier: Apache-2.0
// A one-way connection between two ranks that carries steps in order. A transport only makes links appear; these two
// interfaces are all that the algorithms' host primitives know of it. One thread at a time drives a link; nothing here
// blocks. Errors of the connection are raised by throwing Error(peer_lost or corrupt_message).
#pragma once
#include <cstddef>

#include "comm/team/segment.hpp"

namespace rondo::comm {

struct PollTarget {  // what to poll for while a link is stuck; fd -1: the rank's doorbell rings
  int fd = -1;
  short events = 0;
};

class SendLink {
 public:
  virtual ~SendLink() = default;
  virtual bool ready() = 0;       // a slot is free; stays true until one is taken
  virtual std::byte* slot() = 0;  // after ready(): where to build the next step, slice_bytes long
  virtual void publish(const Signature& signature, std::size_t bytes) = 0;  // what was built in slot()
  // After ready(): the next step is these bytes, which stay as they are until flushed(). Steps may be held back until
  // then, or until all slots are taken, to leave together.
  virtual void send(const Signature& signature, const std::byte* data, std::size_t bytes) = 0;
  virtual bool refers_to(const std::byte* data, std::size_t bytes) const = 0;  // a step not yet flushed lies there
  virtual bool flushed() = 0;  // nothing of the caller's memory is needed any more; drives what is queued
  virtual PollTarget poll_target() const = 0;
};

class RecvLink {
 public:
  virtual ~RecvLink() = default;
  // The next step once all of it is here, else null. Its payload is at data(), which is `direct` if the transport
  // could put it there at once (`direct` may be null). The same arguments until release().
  virtual const StepHeader* try_step(std::byte* direct, std::size_t bytes) = 0;
  virtual const std::byte* data() const = 0;
  virtual void release() = 0;  // the step's memory may be reused
  virtual PollTarget poll_target() const = 0;
};

}  // namespace rondo::comm
