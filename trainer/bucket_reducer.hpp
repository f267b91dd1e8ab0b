// SPDX-License-Identifier: Apache-2.0
// The buckets' memory, and how full ones are averaged. On the CPU gradients are copied into it, or live there; on a
// device they live there, or are averaged where they lie, those of a bucket as one group. Not thread-safe but for take.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rondo/device.hpp>

#include "trainer/buckets.hpp"
#include "trainer/roll_call.hpp"
#include "trainer/stream_clock.hpp"

namespace rondo::trainer {

class BucketReducer {
 public:
  // Collective. Where gradients live in the buckets, `parameters` gets their places. All three outlive it.
  BucketReducer(Communicator& communicator, std::vector<Parameter>& parameters, const SynchronizerOptions& options,
                std::vector<BucketPlan> buckets);
  ~BucketReducer();  // waits for what was started; after a failure that is at once
  BucketReducer(const BucketReducer&) = delete;
  BucketReducer& operator=(const BucketReducer&) = delete;

  const std::vector<BucketPlan>& buckets() const { return buckets_; }
  void take(std::size_t bucket, const Piece& piece);       // its gradient is complete; any thread
  void leave_out(std::size_t bucket, const Piece& piece);  // counts as zeros
  // Before the last bucket starts. strayed: this rank left its static graph.
  void mark(std::span<const char> used, std::size_t step, bool strayed);
  void start(std::size_t bucket);  // every piece was taken or left out
  // Every bucket was started: until gradients that were taken hold their averages.
  RollCall::Answer wait();
  // Gradients that were left out hold the averages too, or what they held before if nobody used them.
  void end_step(std::span<const char> used_somewhere);
  std::size_t reduced() const;
  std::vector<BucketRecord> records() const;  // of this step, after wait()
  void begin_step(std::size_t step);

 private:
  struct Started {
    std::size_t bucket;
    Work work;
    StepRecord::Clock::time_point submitted;
  };
  using Start = std::pair<std::size_t, std::size_t>;  // parameter, first element

  void allocate();
  void place_gradients();
  void describe_parts();
  Bucket view(std::size_t bucket) const;
  bool carries_marks(std::size_t bucket) const { return bucket + 1 == buckets_.size(); }
  std::size_t bytes(const Piece& piece) const;
  std::byte* gradient(const Piece& piece) const;
  std::byte* place(std::size_t bucket, const Piece& piece) const;
  std::span<std::byte> marks() const;
  Work reduce(std::size_t bucket);
  void go_on(Started one);
  void copy(void* to, const void* from, std::size_t count) const;
  void clear(void* to, std::size_t count) const;
  void* keep(const Piece& piece);  // memory as large as the piece, kept from step to step

  Communicator& communicator_;
  std::vector<Parameter>& parameters_;
  const SynchronizerOptions& options_;
  const std::vector<BucketPlan> buckets_;
  const Device device_;
  const bool packed_;  // in memory of buckets; otherwise averaged where the caller's gradients lie
  const RollCall roll_;
  std::vector<std::vector<BucketPart>> parts_;  // by bucket, for the hook
  std::vector<Window<std::byte>> memory_;       // by dtype; where nothing is packed only of the marks
  std::vector<std::byte> marks_here_;           // on a device: what is copied there
  DeviceMemory all_used_;                       // on a device: marks of steps without unused parameters
  std::vector<Started> started_;                // in this step
  std::vector<Started> later_;                  // in this step, by proceed() of the hook
  std::optional<StreamClock> clock_;            // two marks each, and one at the end
  std::size_t step_ = 0;
  std::vector<std::pair<std::size_t, Piece>> left_out_;  // with their buckets
  std::vector<char> is_left_out_;                        // by parameter
  std::map<Start, std::vector<std::byte>> kept_;
  std::map<Start, DeviceMemory> kept_on_device_;
};

}  // namespace rondo::trainer
