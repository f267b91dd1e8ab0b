// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm_link.hpp"

#include <cstring>

#include "kernels/reduce.hpp"

namespace rondo::comm {
namespace {

// The slots of a FIFO, in turn: where the next step lies, without a division.
class Slots {
 public:
  Slots(const Segment& segment, int from, int to)
      : first_(segment.slot(from, to, 0)), stride_(segment.slot(from, to, 1) - first_), count_(segment.shape().slots) {}
  std::byte* here() const { return here_; }
  void go_on() {
    here_ += stride_;
    if (++index_ != count_) return;
    index_ = 0;
    here_ = first_;
  }

 private:
  std::byte* first_;
  std::ptrdiff_t stride_;
  std::uint64_t count_, index_ = 0;
  std::byte* here_ = first_;
};

class ShmSendLink final : public SendLink {
 public:
  ShmSendLink(const Segment& segment, Doorbells bells, int self, int peer)
      : bells_(std::move(bells)),
        peer_(peer),
        count_(segment.shape().slots),
        fifo_(segment.fifo(self, peer)),
        slots_(segment, self, peer) {}

  bool ready() override {
    if (posted_ - freed_ < count_) return true;
    freed_ = fifo_.freed.load(std::memory_order_acquire);  // pairs with the receiver's release()
    return posted_ - freed_ < count_;
  }
  std::byte* slot() override { return slots_.here() + kLine; }
  void publish(const Signature& signature, std::size_t bytes) override {
    const StepHeader header{.signature = signature, .step = posted_, .bytes = bytes};
    std::memcpy(slots_.here(), &header, sizeof header);
    fifo_.posted.store(++posted_, std::memory_order_seq_cst);  // release for try_step(), and before wake() looks
    bells_.wake(peer_);
    slots_.go_on();
    __builtin_prefetch(slots_.here(), 1);  // the peer has them
    __builtin_prefetch(slots_.here() + kLine, 1);
  }
  void send(const Signature& signature, const std::byte* data, std::size_t bytes) override {
    kernels::copy(slot(), data, bytes, kernels::Stores::plain);
    publish(signature, bytes);
  }
  bool refers_to(const std::byte*, std::size_t) const override { return false; }
  bool flushed() override { return true; }
  Wake wake() const override { return {}; }

 private:
  Doorbells bells_;
  int peer_;
  std::uint64_t count_;
  Fifo& fifo_;
  Slots slots_;
  std::uint64_t posted_ = 0, freed_ = 0;
};

class ShmRecvLink final : public RecvLink {
 public:
  ShmRecvLink(const Segment& segment, Doorbells bells, int self, int peer)
      : bells_(std::move(bells)), peer_(peer), fifo_(segment.fifo(peer, self)), slots_(segment, peer, self) {}

  const StepHeader* try_step(std::byte*, std::size_t) override {
    if (taken_ == posted_) {
      posted_ = fifo_.posted.load(std::memory_order_acquire);  // pairs with the sender's publish()
      if (taken_ == posted_) return nullptr;
      __builtin_prefetch(data());  // whoever reads the header first would wait for one line after the other
    }
    return reinterpret_cast<const StepHeader*>(slots_.here());
  }
  const std::byte* data() const override { return slots_.here() + kLine; }
  void release() override {
    slots_.go_on();
    fifo_.freed.store(++taken_, std::memory_order_seq_cst);  // release for ready(), and before wake() looks
    bells_.wake(peer_);
  }
  Wake wake() const override { return {}; }

 private:
  Doorbells bells_;
  int peer_;
  Fifo& fifo_;
  Slots slots_;
  std::uint64_t posted_ = 0, taken_ = 0;
};

}  // namespace

Links make_shm_links(Segment segment, Doorbells bells, int self, int peer) {
  return {.send = std::make_unique<ShmSendLink>(segment, bells, self, peer),
          .recv = std::make_unique<ShmRecvLink>(segment, bells, self, peer),
          .longest_step = segment.shape().slice_bytes};
}

}  // namespace rondo::comm
