// SPDX-License-Identifier: Apache-2.0
// A one-way connection between two ranks that carries steps in order. A transport only makes links appear; these two
// interfaces are all that the algorithms' host primitives know of it. One thread at a time drives a link; nothing here
// blocks. Errors of the connection are raised by throwing Error(peer_lost or corrupt_message).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/team/segment.hpp"

namespace rondo::comm {

// What ends the sleep of a rank that waits for a link.
struct Wake {
  enum class By : std::uint8_t {
    doorbell,    // the peer rings this rank's; one in the segment has sent all by the time it has left
    descriptor,  // fd has one of `events`, as poll() has them
    looking,     // nothing: the rank sleeps in short naps and looks in between, which drives the link
  };
  By by = By::doorbell;
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
  virtual bool flushed() = 0;     // nothing of the caller's memory is needed any more; drives what is queued
  virtual Wake wake() const = 0;  // of who waits until it is ready, or flushed
};

class RecvLink {
 public:
  virtual ~RecvLink() = default;
  // The next step once all of it is here, else null. Its payload is at data(), which is `direct` if the transport
  // could put it there at once (`direct` may be null). The same arguments until release(); but whoever does not know
  // the step's bytes asks with (null, 0) first, gets the header, and asks again with what that says.
  virtual const StepHeader* try_step(std::byte* direct, std::size_t bytes) = 0;
  virtual const std::byte* data() const = 0;
  virtual void release() = 0;     // the step's memory may be reused
  virtual Wake wake() const = 0;  // of who waits for a step
};

struct Links {  // with one peer
  std::unique_ptr<SendLink> send;
  std::unique_ptr<RecvLink> recv;
  std::size_t longest_step = 0;  // bytes that both take as one step of send(); at least a slice
};

}  // namespace rondo::comm
