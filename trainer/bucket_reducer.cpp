// SPDX-License-Identifier: Apache-2.0
#include "trainer/bucket_reducer.hpp"

#include <algorithm>
#include <cstring>

namespace rondo::trainer {
namespace {

std::byte* gradient(const Parameter& parameter, const Piece& piece) {
  return static_cast<std::byte*>(parameter.gradient) + piece.first * size_of(parameter.dtype);
}

class HostReducer : public BucketReducer {
 public:
  HostReducer(Communicator& communicator, const std::vector<Parameter>& parameters,
              const std::vector<BucketPlan>& buckets)
      : communicator_(communicator), parameters_(parameters), buckets_(buckets) {
    for (const BucketPlan& bucket : buckets)
      memory_.push_back(communicator.allocate<std::byte>(bucket.count * size_of(bucket.dtype)));
  }
  ~HostReducer() override {
    for (Work& work : works_) {
      try {
        work.wait();
      } catch (const std::exception&) {
        return;  // the communicator has failed; the owner hears of it at its next call
      }
    }
  }

  void begin_step() override { works_.clear(); }
  void take(std::size_t bucket, const Piece& piece) override {
    if (piece.count != 0) std::memcpy(place(bucket, piece), gradient(of(piece), piece), bytes(piece));
  }
  void start(std::size_t bucket) override {
    std::byte* data = memory_[bucket].data();
    works_.push_back(communicator_.async().all_reduce(data, data, buckets_[bucket].count, buckets_[bucket].dtype,
                                                      ReduceOp::average));
  }
  void finish() override {
    for (std::size_t bucket = 0; bucket < works_.size(); ++bucket) {
      works_[bucket].wait();
      for (const Piece& piece : buckets_[bucket].pieces)
        if (piece.count != 0) std::memcpy(gradient(of(piece), piece), place(bucket, piece), bytes(piece));
    }
  }
  std::size_t reduced() const override {
    return static_cast<std::size_t>(
        std::count_if(works_.begin(), works_.end(), [](const Work& work) { return work.done(); }));
  }

 private:
  const Parameter& of(const Piece& piece) const { return parameters_[piece.parameter]; }
  std::size_t bytes(const Piece& piece) const { return piece.count * size_of(of(piece).dtype); }
  std::byte* place(std::size_t bucket, const Piece& piece) const {
    return memory_[bucket].data() + piece.offset * size_of(buckets_[bucket].dtype);
  }

  Communicator& communicator_;
  const std::vector<Parameter>& parameters_;
  const std::vector<BucketPlan>& buckets_;
  std::vector<Window<std::byte>> memory_;
  std::vector<Work> works_;  // of the buckets started in this step
};

class DeviceReducer : public BucketReducer {
 public:
  DeviceReducer(Communicator& communicator, const std::vector<Parameter>& parameters,
                const std::vector<BucketPlan>& buckets, Stream stream)
      : communicator_(communicator), parameters_(parameters), buckets_(buckets), stream_(stream) {}
  ~DeviceReducer() override {
    if (!started_) return;
    try {
      communicator_.synchronize(stream_);
    } catch (const std::exception&) {  // as above
    }
  }

  void begin_step() override { started_ = false; }
  void take(std::size_t, const Piece&) override {}  // it stays where it is
  void start(std::size_t bucket) override {
    Group group = communicator_.group();
    for (const Piece& piece : buckets_[bucket].pieces) {
      const Parameter& p = parameters_[piece.parameter];
      std::byte* data = gradient(p, piece);
      if (piece.count != 0) group.all_reduce(data, data, piece.count, p.dtype, ReduceOp::average, stream_);
    }
    started_ = true;
    group.end();
  }
  void finish() override { communicator_.synchronize(stream_); }
  std::size_t reduced() const override { return 0; }

 private:
  Communicator& communicator_;
  const std::vector<Parameter>& parameters_;
  const std::vector<BucketPlan>& buckets_;
  Stream stream_;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<BucketReducer> BucketReducer::make(Communicator& communicator, const std::vector<Parameter>& parameters,
                                                   const std::vector<BucketPlan>& buckets, Stream stream) {
  if (communicator.device().kind == Device::Kind::cpu)
    return std::make_unique<HostReducer>(communicator, parameters, buckets);
  return std::make_unique<DeviceReducer>(communicator, parameters, buckets, stream);
}

}  // namespace rondo::trainer
