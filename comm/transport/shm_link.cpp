// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm_link.hpp"

#include <cstring>

#include "kernels/reduce.hpp"

namespace rondo::comm {
namespace {

class ShmSendLink final : public SendLink {
 public:
  ShmSendLink(Segment segment, Doorbells bells, int self, int peer)
      : segment_(segment), bells_(std::move(bells)), self_(self), peer_(peer), fifo_(segment_.fifo(self, peer)) {}

  bool ready() override {
    if (posted_ - freed_ < segment_.shape().slots) return true;
    freed_ = fifo_.freed.load(std::memory_order_acquire);  // pairs with the receiver's release()
    return posted_ - freed_ < segment_.shape().slots;
  }
  std::byte* slot() override { return segment_.slot(self_, peer_, posted_) + kLine; }
  void publish(const Signature& signature, std::size_t bytes) override {
    const StepHeader header{.signature = signature, .step = posted_, .bytes = bytes};
    std::memcpy(segment_.slot(self_, peer_, posted_), &header, sizeof header);
    fifo_.posted.store(++posted_, std::memory_order_seq_cst);  // release for try_step(), and before wake() looks
    bells_.wake(peer_);
    std::byte* const next = segment_.slot(self_, peer_, posted_);
    __builtin_prefetch(next, 1);  // the peer has them
    __builtin_prefetch(next + kLine, 1);
  }
  void send(const Signature& signature, const std::byte* data, std::size_t bytes) override {
    kernels::copy(slot(), data, bytes, kernels::Stores::plain);
    publish(signature, bytes);
  }
  bool refers_to(const std::byte*, std::size_t) const override { return false; }
  bool flushed() override { return true; }
  Wake wake() const override { return {}; }

 private:
  Segment segment_;
  Doorbells bells_;
  int self_, peer_;
  Fifo& fifo_;
  std::uint64_t posted_ = 0, freed_ = 0;
};

class ShmRecvLink final : public RecvLink {
 public:
  ShmRecvLink(Segment segment, Doorbells bells, int self, int peer)
      : segment_(segment), bells_(std::move(bells)), self_(self), peer_(peer), fifo_(segment_.fifo(peer, self)) {}

  const StepHeader* try_step(std::byte*, std::size_t) override {
    if (taken_ == posted_) {
      posted_ = fifo_.posted.load(std::memory_order_acquire);  // pairs with the sender's publish()
      if (taken_ == posted_) return nullptr;
      __builtin_prefetch(data());  // whoever reads the header first would wait for one line after the other
    }
    return reinterpret_cast<const StepHeader*>(segment_.slot(peer_, self_, taken_));
  }
  const std::byte* data() const override { return segment_.slot(peer_, self_, taken_) + kLine; }
  void release() override {
    fifo_.freed.store(++taken_, std::memory_order_seq_cst);  // release for ready(), and before wake() looks
    bells_.wake(peer_);
  }
  Wake wake() const override { return {}; }

 private:
  Segment segment_;
  Doorbells bells_;
  int self_, peer_;
  Fifo& fifo_;
  std::uint64_t posted_ = 0, taken_ = 0;
};

}  // namespace

Links make_shm_links(Segment segment, Doorbells bells, int self, int peer) {
  return {.send = std::make_unique<ShmSendLink>(segment, bells, self, peer),
          .recv = std::make_unique<ShmRecvLink>(segment, bells, self, peer),
          .longest_step = segment.shape().slice_bytes};
}

}  // namespace rondo::comm
