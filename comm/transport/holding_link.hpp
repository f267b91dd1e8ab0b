// SPDX-License-Identifier: Apache-2.0
// The sending half of a link over a stream: it holds steps back, in order, until it is flushed or has no room. Their
// bytes lie in the caller's memory or in one of shape.slots slots of our own. How they leave is the link's own matter.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/team/link.hpp"

namespace rondo::comm {

inline constexpr std::size_t kMostHeldSteps = 64;

struct HeldStep {
  StepHeader header{};
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool built = false;  // in a slot
};

// Link derives from it and has pump(): that sends from front() on what goes now, and drops each step that has gone. It
// is called as the Link's own, so that no step takes one virtual call more. Step is a HeldStep and what Link adds.
template <class Link, class Step = HeldStep>
class HoldingSendLink : public SendLink {
 public:
  bool ready() final {
    if (has_room()) return true;
    self().pump();
    return has_room();
  }
  std::byte* slot() final {
    if (!slots_) slots_ = std::make_unique_for_overwrite<std::byte[]>(shape_.slots * shape_.slice_bytes);
    return slots_.get() + (slot_ % shape_.slots) * shape_.slice_bytes;
  }
  void publish(const Signature& signature, std::size_t bytes) final {
    self().amend(hold(signature, slot(), bytes, true));
    ++slot_;
    ++built_;
  }
  void send(const Signature& signature, const std::byte* data, std::size_t bytes) final {
    self().amend(hold(signature, data, bytes, false));
  }
  bool refers_to(const std::byte* data, std::size_t bytes) const final {
    for (std::uint64_t step = dropped_; step != posted_; ++step) {
      const Step& held = at(step);
      if (held.data < data + bytes && data < held.data + held.bytes) return true;
    }
    return false;
  }
  bool flushed() override {
    if (queued() != 0) self().pump();
    return queued() == 0;
  }

 protected:
  // Holds as many steps as make up held_bytes, but no fewer than slots and at most kMostHeldSteps; and `more`.
  HoldingSendLink(FifoShape shape, std::size_t held_bytes, std::size_t more = 0)
      : shape_(shape),
        most_(std::clamp<std::size_t>(held_bytes / shape.slice_bytes, shape.slots, kMostHeldSteps) + more),
        queue_(std::bit_ceil(most_)) {}

  std::uint64_t queued() const { return posted_ - dropped_; }
  const Step& front() const { return at(dropped_); }
  // Each step from front() on, until visit_one returns false.
  template <class Visit>
  void visit(const Visit& visit_one) const {
    for (std::uint64_t step = dropped_; step != posted_ && visit_one(at(step)); ++step) {
    }
  }
  void drop_front() {
    if (front().built) --built_;
    ++dropped_;
  }
  Step& hold(const Signature& signature, const std::byte* data, std::size_t bytes, bool built) {
    Step& step = queue_[posted_ & (queue_.size() - 1)];
    step.header.signature = signature;
    step.header.step = posted_++;
    step.header.bytes = bytes;
    step.data = data;
    step.bytes = bytes;
    step.built = built;
    return step;
  }
  // Of every step that publish() or send() has queued. Link may have one of its own, which changes the header.
  void amend(Step&) {}

 private:
  Link& self() { return static_cast<Link&>(*this); }
  bool has_room() const { return queued() < most_ && built_ < shape_.slots; }
  const Step& at(std::uint64_t step) const { return queue_[step & (queue_.size() - 1)]; }

  FifoShape shape_;
  std::size_t most_;                    // steps queued at once
  std::vector<Step> queue_;             // as many or more, a power of two
  std::unique_ptr<std::byte[]> slots_;  // only as much memory as steps have lain in
  std::uint64_t posted_ = 0, dropped_ = 0;
  std::uint64_t slot_ = 0, built_ = 0;  // the next slot's number; queued steps that lie in slots
};

}  // namespace rondo::comm
