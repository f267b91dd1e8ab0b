// SPDX-License-Identifier: Apache-2.0
// A step of a bucket: with what the last step lost, each matrix M gives P = M Q; the sum of all ranks' P is made
// orthonormal, the average of Q = M^T P makes the result P Q^T. What is no matrix rides with P, and for each matrix one
// number above zero where some rank has a gradient.
#include <rondo/trainer/power_sgd.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer/low_rank.hpp"
#include "trainer/normal.hpp"

namespace rondo::trainer {
namespace {

struct Matrix {
  std::size_t at = 0;  // element of the bucket
  low_rank::Shape shape{};
  std::size_t p_at = 0, q_at = 0, lost_at = 0;  // elements of the factors, and of what was lost
  bool warm = false;                            // the factor Q is what the last step ended with
};
struct Range {
  std::size_t at = 0, count = 0;  // elements of the bucket
};

// What of a bucket is compressed. Matrices of one shape follow one another, as PyTorch draws their first factors.
struct BucketLayout {
  std::vector<Matrix> matrices{};
  std::vector<Range> rest{};
  std::size_t rest_count = 0, p_count = 0, q_count = 0, lost_count = 0;

  BucketLayout(const Bucket& bucket, const PowerSgdOptions& options) {
    for (const BucketPart& part : bucket.parts) add(part, options);
    keep({bucket.count - bucket.marks, bucket.marks});
    const std::vector<Matrix> found = std::exchange(matrices, {});
    for (const Matrix& first : found) {
      const auto same = [&](const Matrix& m) {
        return m.shape.rows == first.shape.rows && m.shape.columns == first.shape.columns;
      };
      if (std::none_of(matrices.begin(), matrices.end(), same))
        std::copy_if(found.begin(), found.end(), std::back_inserter(matrices), same);
    }
    for (Matrix& m : matrices) {
      m.p_at = std::exchange(p_count, p_count + m.shape.rank * m.shape.rows);
      m.q_at = std::exchange(q_count, q_count + m.shape.rank * m.shape.columns);
      m.lost_at = std::exchange(lost_count, lost_count + m.shape.rows * m.shape.columns);
    }
  }

 private:
  void add(const BucketPart& part, const PowerSgdOptions& options) {
    const std::size_t columns = part.shape.empty() ? 1
                                                   : std::accumulate(part.shape.begin() + 1, part.shape.end(),
                                                                     std::size_t{1}, std::multiplies<>());
    if (part.count == 0 || part.shape.empty()) return keep({part.offset, part.count});
    const std::size_t first_row = (part.first + columns - 1) / columns;
    const std::size_t last_row = (part.first + part.count) / columns;
    const std::size_t rows = last_row > first_row ? last_row - first_row : 0;
    const std::size_t rank = std::min({rows, columns, options.matrix_approximation_rank});
    const auto compressed = static_cast<double>(rank * (rows + columns));
    if (rows == 0 || compressed * options.min_compression_rate >= static_cast<double>(rows * columns))
      return keep({part.offset, part.count});
    const std::size_t head = first_row * columns - part.first;
    keep({part.offset, head});
    matrices.push_back({.at = part.offset + head, .shape = {rows, columns, rank}});
    keep({part.offset + head + rows * columns, part.count - head - rows * columns});
  }
  void keep(const Range& range) {
    if (range.count == 0) return;
    rest.push_back(range);
    rest_count += range.count;
  }
};

Work plain_average(Communicator& communicator, const Bucket& bucket) {
  return communicator.async().all_reduce(bucket.data, bucket.data, bucket.count, bucket.dtype, ReduceOp::average);
}

// One bucket of floats of some type.
class Compressor {
 public:
  virtual ~Compressor() = default;
  virtual Work send_p(Communicator& communicator, std::byte* data, NumpySeeds& seeds) = 0;
  virtual Work send_q(Communicator& communicator, std::byte* data) = 0;
  virtual void finish(std::byte* data) = 0;
};

template <class T>
class TypedCompressor : public Compressor {
 public:
  TypedCompressor(Communicator& communicator, BucketLayout layout, const PowerSgdOptions& options)
      : layout_(std::move(layout)),
        options_(options),
        world_size_(static_cast<T>(communicator.world_size())),
        message_(communicator.allocate<T>(layout_.p_count + layout_.matrices.size() + layout_.rest_count)),
        q_(communicator.allocate<T>(layout_.q_count)),
        lost_(options.use_error_feedback ? layout_.lost_count : 0) {}

  Work send_p(Communicator& communicator, std::byte* data, NumpySeeds& seeds) override {
    T* const bucket = reinterpret_cast<T*>(data);
    draw(seeds);
    T* to = message_.data() + layout_.p_count;
    for (const Matrix& m : layout_.matrices) {
      *to++ = add_lost(m, bucket) ? T(1) : T(0);
      low_rank::orthogonalize(q_of(m), m.shape.columns, options_.orthogonalization_epsilon);
      low_rank::left_factor(bucket + m.at, m.shape, q_of(m).data(), p_of(m).data());
    }
    for (const Range& range : layout_.rest) to = std::copy_n(bucket + range.at, range.count, to);
    return communicator.async().all_reduce(message_.span(), ReduceOp::sum);
  }
  Work send_q(Communicator& communicator, std::byte* data) override {
    const T* const bucket = reinterpret_cast<const T*>(data);
    for (const Matrix& m : layout_.matrices) {
      low_rank::orthogonalize(p_of(m), m.shape.rows, options_.orthogonalization_epsilon);
      low_rank::right_factor(bucket + m.at, m.shape, p_of(m).data(), q_of(m).data());
    }
    return communicator.async().all_reduce(q_.span(), ReduceOp::average);
  }
  void finish(std::byte* data) override {
    T* const bucket = reinterpret_cast<T*>(data);
    const T* from = message_.data() + layout_.p_count;
    for (Matrix& m : layout_.matrices) end(m, *from++ != T(0), bucket);
    for (const Range& range : layout_.rest) {
      std::transform(from, from + range.count, bucket + range.at, [this](T sum) { return sum / world_size_; });
      from += range.count;
    }
  }

 private:
  std::span<T> p_of(const Matrix& m) const { return message_.span().subspan(m.p_at, m.shape.rank * m.shape.rows); }
  std::span<T> q_of(const Matrix& m) const { return q_.span().subspan(m.q_at, m.shape.rank * m.shape.columns); }
  std::span<T> lost_of(const Matrix& m) { return std::span(lost_).subspan(m.lost_at, m.shape.rows * m.shape.columns); }

  // A vector of zeros would stay one for ever, and an infinity too. The factor is the same on all ranks, whoever had
  // the infinity, so all decide the same.
  void end(Matrix& m, bool is_used, T* bucket) {
    const auto q = q_of(m);
    low_rank::product(p_of(m).data(), q.data(), m.shape, bucket + m.at);
    const bool finite = std::all_of(q.begin(), q.end(), [](T value) { return std::isfinite(value); });
    m.warm = finite && options_.warm_start;
    for (std::size_t at = 0; at < q.size(); at += m.shape.columns) {
      const auto vector = q.subspan(at, m.shape.columns);
      m.warm &= std::any_of(vector.begin(), vector.end(), [](T value) { return value != T(0); });
    }
    if (lost_.empty()) return;
    const auto lost = lost_of(m);
    if (!is_used) std::fill_n(bucket + m.at, lost.size(), T(0));
    if (finite) low_rank::add(T(-1), bucket + m.at, lost.data(), lost.size());
    if (!finite) std::fill(lost.begin(), lost.end(), T(0));
  }
  void draw(NumpySeeds& seeds) {
    if (std::all_of(layout_.matrices.begin(), layout_.matrices.end(), [](const Matrix& m) { return m.warm; })) return;
    NormalNumbers numbers(seeds.next());
    std::vector<T> drawn;  // PyTorch's factor has a row for each column of the matrix
    for (const Matrix& m : layout_.matrices) {
      const auto [rows, columns, rank] = m.shape;
      drawn.resize(columns * rank);
      numbers.fill(std::span<T>(drawn));
      if (m.warm) continue;
      for (std::size_t r = 0; r < rank; ++r) {
        for (std::size_t c = 0; c < columns; ++c) q_of(m)[r * columns + c] = drawn[c * rank + r];
      }
    }
  }
  // Then both are the gradient with what was lost. Whether there is a gradient: what ranks lost adds up to what the
  // average lost, so one without adds its part too, but nobody takes the result where all are without.
  bool add_lost(const Matrix& m, T* bucket) {
    const std::span<T> gradient(bucket + m.at, m.shape.rows * m.shape.columns);
    const bool is_used = std::any_of(gradient.begin(), gradient.end(), [](T value) { return value != T(0); });
    if (lost_.empty()) return is_used;
    const std::span<T> lost = lost_of(m);
    low_rank::add(T(1), lost.data(), gradient.data(), gradient.size());
    std::copy(gradient.begin(), gradient.end(), lost.begin());
    return is_used;
  }

  BucketLayout layout_;
  const PowerSgdOptions options_;
  const T world_size_;
  Window<T> message_;  // the factors P, and what is not compressed
  Window<T> q_;
  std::vector<T> lost_;  // by this rank's last step
};

class PowerSgd : public BucketHook {
 public:
  explicit PowerSgd(const PowerSgdOptions& options) : options_(options), seeds_(options.random_seed) {}

  std::string description() const override {
    return fmt::format(
        "power_sgd of rank {} from step {}, rate {}, error feedback {}, warm start {}, epsilon {}, seed {}",
        options_.matrix_approximation_rank, options_.start_step, options_.min_compression_rate,
        options_.use_error_feedback ? "on" : "off", options_.warm_start ? "on" : "off",
        options_.orthogonalization_epsilon, options_.random_seed);
  }
  void prepare(Communicator& communicator, std::span<const Bucket> buckets) override {
    if (communicator.device().kind != Device::Kind::cpu) {
      throw Error(ErrorCode::invalid_argument,
                  "power_sgd: gradients are in device memory, which only a hook of your own could compress");
    }
    seeds_ = NumpySeeds(options_.random_seed);
    stages_.assign(buckets.size(), Stage::plain);
    compressors_.clear();
    for (const Bucket& bucket : buckets) compressors_.push_back(make(communicator, bucket));
  }
  Work start(Communicator& communicator, const Bucket& bucket) override {
    const auto& compressor = compressors_[bucket.index];
    const bool plain = bucket.step < options_.start_step || !compressor;
    stages_[bucket.index] = plain ? Stage::plain : Stage::p;
    return plain ? plain_average(communicator, bucket) : compressor->send_p(communicator, bucket.data, seeds_);
  }
  std::optional<Work> proceed(Communicator& communicator, const Bucket& bucket) override {
    if (stages_[bucket.index] != Stage::p) return std::nullopt;
    stages_[bucket.index] = Stage::q;
    return compressors_[bucket.index]->send_q(communicator, bucket.data);
  }
  void finish(const Bucket& bucket) override {
    if (stages_[bucket.index] == Stage::q) compressors_[bucket.index]->finish(bucket.data);
  }

 private:
  enum class Stage : char { plain, p, q };  // what is on its way

  // Null where nothing is compressed.
  std::unique_ptr<Compressor> make(Communicator& communicator, const Bucket& bucket) const {
    if (bucket.dtype != DataType::f32 && bucket.dtype != DataType::f64) return nullptr;
    BucketLayout layout(bucket, options_);
    if (layout.matrices.empty()) return nullptr;
    if (bucket.dtype == DataType::f32)
      return std::make_unique<TypedCompressor<float>>(communicator, std::move(layout), options_);
    return std::make_unique<TypedCompressor<double>>(communicator, std::move(layout), options_);
  }

  const PowerSgdOptions options_;
  NumpySeeds seeds_;
  std::vector<std::unique_ptr<Compressor>> compressors_;  // by bucket
  std::vector<Stage> stages_;
};

}  // namespace

std::shared_ptr<BucketHook> power_sgd(PowerSgdOptions options) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::invalid_argument, "power_sgd: " + why); };
  if (options.matrix_approximation_rank == 0) refuse("matrix_approximation_rank is 0; pass at least 1");
  if (options.start_step == 0)
    refuse("start_step is 0, but gradients find their places in the first step; pass at least 1");
  if (!(options.min_compression_rate > 0) || !std::isfinite(options.min_compression_rate))
    refuse(fmt::format("min_compression_rate is {}; pass a number above 0", options.min_compression_rate));
  if (!(options.orthogonalization_epsilon >= 0) || !std::isfinite(options.orthogonalization_epsilon))
    refuse(fmt::format("orthogonalization_epsilon is {}; pass 0 or a small number", options.orthogonalization_epsilon));
  return std::make_shared<PowerSgd>(options);
}

}  // namespace rondo::trainer
