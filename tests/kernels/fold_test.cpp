// SPDX-License-Identifier: Apache-2.0
// The contract of FoldJob, on every instruction set the processor has: several outputs, stores past the caches, any
// alignment, outputs over inputs; and that all instruction sets give the same bits. What the bits are, reduce_test
// says.
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/reduce_table.hpp"
#include "tests/kernels/tables.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using kernels::Stores;
using test::rotating_seed;
using test::tables;
using Bytes = std::vector<unsigned char>;

namespace {

constexpr unsigned char kPoison = 0xa5;
constexpr std::size_t kMargin = 64;  // around what is written
constexpr std::size_t kWidest = 64;  // bytes of a register

Bytes random_bytes(std::mt19937_64& random, std::size_t bytes) {
  Bytes values(bytes);
  for (auto& value : values) value = static_cast<unsigned char>(random());
  return values;
}

// NaNs differ in what no operator promises: which of two survives.
bool is_nan(DataType dtype, const unsigned char* at) {
  switch (dtype) {
    case DataType::f16: {
      float16 value;
      std::memcpy(&value, at, sizeof(value));
      return (value.bits & 0x7fff) > 0x7c00;
    }
    case DataType::bf16: {
      bfloat16 value;
      std::memcpy(&value, at, sizeof(value));
      return (value.bits & 0x7fff) > 0x7f80;
    }
    case DataType::f32: {
      float value = 0;
      std::memcpy(&value, at, sizeof(value));
      return value != value;
    }
    case DataType::f64: {
      double value = 0;
      std::memcpy(&value, at, sizeof(value));
      return value != value;
    }
    case DataType::f8e4m3:
      return (*at & 0x7f) == 0x7f;
    case DataType::f8e5m2:
      return (*at & 0x7f) > 0x7c;
    default:
      return false;
  }
}

std::size_t differences(DataType dtype, const unsigned char* a, const unsigned char* b, std::size_t count) {
  const std::size_t element = size_of(dtype);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i, a += element, b += element) {
    wrong += std::memcmp(a, b, element) != 0 && !(is_nan(dtype, a) && is_nan(dtype, b));
  }
  return wrong;
}

// The fold of one element after the other, by the first instruction set.
Bytes expected_of(DataType dtype, ReduceOp::Kind op, const std::vector<const void*>& in, std::size_t count) {
  const std::size_t element = size_of(dtype);
  const auto fold = kernels::reduce_table_baseline().rows[static_cast<int>(dtype)].fold[op];
  Bytes out(count * element);
  std::vector<const void*> at(in.size());
  for (std::size_t i = 0; i < out.size(); i += element) {
    for (std::size_t rank = 0; rank < in.size(); ++rank) at[rank] = static_cast<const unsigned char*>(in[rank]) + i;
    kernels::fold_into(fold, out.data() + i, at.data(), static_cast<int>(at.size()), 1, static_cast<double>(at.size()));
  }
  return out;
}

struct Shape {
  std::size_t count;
  int inputs;
  int outputs;
  Stores stores, first_stores;
  int output_over;  // the input that the last output lies on; none if negative
  bool alike;       // all buffers begin at the same element of a register; else aligned to nothing
};

class FoldCase {
 public:
  FoldCase(DataType dtype, ReduceOp::Kind op, const Shape& shape, std::mt19937_64& random)
      : dtype_(dtype), op_(op), shape_(shape), bytes_(shape.count * size_of(dtype)) {
    const std::size_t phase = random() % 16 * size_of(dtype) % kWidest;
    const auto place = [&](unsigned char* from) {
      return from + (shape.alike ? (phase - reinterpret_cast<std::uintptr_t>(from)) % kWidest : random() % kMargin);
    };
    for (int rank = 0; rank < shape.inputs; ++rank) {
      inputs_.push_back(random_bytes(random, bytes_ + 2 * kMargin));
      in_.push_back(place(inputs_.back().data()));
    }
    expected_ = expected_of(dtype, op, in_, shape.count);
    for (int k = 0; k < shape.outputs; ++k) {
      outputs_.emplace_back(bytes_ + 3 * kMargin, kPoison);
      out_.push_back(place(outputs_.back().data() + kMargin));
    }
    if (shape.output_over >= 0) out_.back() = const_cast<void*>(in_[static_cast<std::size_t>(shape.output_over)]);
  }

  std::size_t wrong(const kernels::ReduceTable& table) {
    table.rows[static_cast<int>(dtype_)].fold[op_]({.out = out_.data(),
                                                    .outputs = shape_.outputs,
                                                    .in = in_.data(),
                                                    .inputs = shape_.inputs,
                                                    .count = shape_.count,
                                                    .divisor = static_cast<double>(shape_.inputs),
                                                    .stores = shape_.stores,
                                                    .first_stores = shape_.first_stores});
    std::size_t bad = 0;
    for (void* out : out_) bad += differences(dtype_, static_cast<unsigned char*>(out), expected_.data(), shape_.count);
    for (std::size_t k = 0; k < outputs_.size(); ++k) bad += written_around(k);
    return bad;
  }

 private:
  std::size_t written_around(std::size_t k) const {
    const auto* first = static_cast<const unsigned char*>(out_[k]);
    const bool elsewhere = shape_.output_over >= 0 && k + 1 == out_.size();
    std::size_t bad = 0;
    for (const auto& byte : outputs_[k]) {
      const bool inside = !elsewhere && &byte >= first && &byte < first + bytes_;
      bad += !inside && byte != kPoison;
    }
    return bad;
  }

  DataType dtype_;
  ReduceOp::Kind op_;
  Shape shape_;
  std::size_t bytes_;
  std::vector<Bytes> inputs_, outputs_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  Bytes expected_;
};

template <class F>
void for_each_dtype_and_op(F f) {
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      const auto dtype = static_cast<DataType>(type);
      if (is_supported(dtype, static_cast<ReduceOp::Kind>(op))) f(dtype, static_cast<ReduceOp::Kind>(op));
    }
  }
}

// Every value of f16 and bf16 beside each of these: all instruction sets, the same bits.
void compare_instruction_sets(const std::vector<std::uint16_t>& values, const std::vector<ReduceOp::Kind>& ops) {
  constexpr std::size_t kAll = 1 << 16;
  std::vector<std::uint16_t> every(kAll), beside(kAll), first(kAll), other(kAll);
  std::iota(every.begin(), every.end(), std::uint16_t{0});
  for (const DataType dtype : {DataType::f16, DataType::bf16}) {
    for (const ReduceOp::Kind op : ops) {
      for (const std::uint16_t value : values) {
        std::fill(beside.begin(), beside.end(), value);
        const auto run = [&](const kernels::ReduceTable& table, std::vector<std::uint16_t>& out) {
          kernels::fold_pair(table.rows[static_cast<int>(dtype)].fold[op], out.data(), every.data(), beside.data(),
                             kAll);
        };
        run(*tables().front(), first);
        for (const auto* table : tables()) {
          run(*table, other);
          INFO(table->name << ' ' << name_of(dtype) << ' ' << name_of(op) << " beside " << value);
          if (first == other) continue;
          REQUIRE(differences(dtype, reinterpret_cast<const unsigned char*>(first.data()),
                              reinterpret_cast<const unsigned char*>(other.data()), kAll) == 0);
        }
      }
    }
  }
}

// Pages side by side or not, whichever suits the processor: that last.
std::array<bool, 2> both_ways() { return {!kernels::fetches_within_pages, kernels::fetches_within_pages}; }

}  // namespace

TEST_CASE("fold: several outputs, any alignment, past the caches, over an input") {
  std::mt19937_64 random(rotating_seed());
  for_each_dtype_and_op([&](DataType dtype, ReduceOp::Kind op) {
    for (const std::size_t count : {0, 1, 3, 15, 64, 257, 5000}) {
      for (const int inputs : {1, 2, 3, 9}) {
        for (const int outputs : {1, 2, 5}) {
          for (const Stores stores : {Stores::plain, Stores::streaming}) {
            const int over = static_cast<int>(random() % static_cast<unsigned>(2 * inputs)) - inputs;  // often none
            const Stores first = random() % 2 == 0 ? Stores::plain : Stores::streaming;
            const Shape shape = {count, inputs, outputs, stores, first, over, random() % 2 == 0};
            INFO(name_of(dtype) << ' ' << name_of(op) << " count " << count << " inputs " << inputs << " outputs "
                                << outputs << (stores == Stores::streaming ? " streaming" : " plain") << " first"
                                << (first == Stores::streaming ? " streaming" : " plain") << " over " << over
                                << (shape.alike ? " alike" : ""));
            for (const auto* table : tables()) {
              INFO(table->name);
              FoldCase one(dtype, op, shape, random);
              CHECK(one.wrong(*table) == 0);
            }
          }
        }
      }
    }
  });
}

TEST_CASE("fold: two inputs of many pages into one output") {
  std::mt19937_64 random(rotating_seed());
  for_each_dtype_and_op([&](DataType dtype, ReduceOp::Kind op) {
    const std::size_t count = (9 * 4096 + random() % 4096) / size_of(dtype);
    for (const Stores stores : {Stores::plain, Stores::streaming}) {
      const int over = static_cast<int>(random() % 4) - 2;
      INFO(name_of(dtype) << ' ' << name_of(op) << " count " << count << " over " << over);
      for (const bool abreast : both_ways()) {
        kernels::fetches_within_pages = abreast;
        for (const auto* table : tables()) {
          INFO(table->name << (abreast ? " abreast" : ""));
          FoldCase one(dtype, op, {count, 2, 1, stores, stores, over, true}, random);
          CHECK(one.wrong(*table) == 0);
        }
      }
    }
  });
}

TEST_CASE("copy moves all bytes and no others, from and to anywhere") {
  std::mt19937_64 random(rotating_seed());
  const Bytes from = random_bytes(random, 1024);
  for (const Stores stores : {Stores::plain, Stores::streaming}) {
    for (const std::size_t bytes : {0, 1, 2, 63, 64, 65, 130, 700}) {
      for (std::size_t to_offset = 0; to_offset < kMargin; to_offset += 7) {
        const std::size_t from_offset = random() % kMargin;
        Bytes to(1024, kPoison), expected = to;
        std::memcpy(expected.data() + to_offset, from.data() + from_offset, bytes);
        kernels::copy(to.data() + to_offset, from.data() + from_offset, bytes, stores);
        INFO("bytes " << bytes << " to " << to_offset << " from " << from_offset);
        CHECK(to == expected);
      }
    }
  }
  for (const auto* table : tables()) {
    Bytes to(1024, kPoison);
    table->copy(to.data(), from.data(), from.size());
    INFO(table->name);
    CHECK(to == from);
  }
  for (const auto* table : tables()) {
    Bytes to(1024, kPoison);
    table->stream(to.data(), from.data(), from.size());
    INFO(table->name);
    CHECK(to == from);
  }
}

// Those of many pages go another way, unless they lie close to each other in terms of pages.
TEST_CASE("long copies move all bytes and no others, to one place, to two and to more") {
  std::mt19937_64 random(rotating_seed());
  constexpr std::size_t kPage = 4096, kRoom = 12 * kPage;
  const Bytes from = random_bytes(random, kRoom);
  const auto page_offset = [](const unsigned char* at) { return reinterpret_cast<std::uintptr_t>(at) % kPage; };
  for (const bool abreast : both_ways()) {
    kernels::fetches_within_pages = abreast;
    for (const std::size_t bytes : {kPage - 1, kPage, kPage + 1, 4 * kPage, 8 * kPage + 100}) {
      for (const std::size_t behind : {0, 1, 15, 63, 127, 128, 1000, 4095}) {
        const std::size_t start = random() % kPage;
        Bytes one(kRoom, kPoison), past = one, fetched = one, two = one, again = one, three[] = {one, one, one};
        const auto moved = [&](const Bytes& to) {
          return (page_offset(from.data() + start) + behind + kPage - page_offset(to.data())) % kPage;
        };
        const auto expected = [&](const Bytes& to) {
          Bytes all(kRoom, kPoison);
          std::memcpy(all.data() + moved(to), from.data() + start, bytes);
          return all;
        };
        kernels::copy(one.data() + moved(one), from.data() + start, bytes, Stores::plain);
        kernels::copy(past.data() + moved(past), from.data() + start, bytes, Stores::streaming);
        kernels::fetch(fetched.data() + moved(fetched), from.data() + start, bytes);
        const auto any_stores = [&] { return random() % 2 == 0 ? Stores::plain : Stores::streaming; };
        kernels::copy_twice({two.data() + moved(two), any_stores()}, {again.data() + moved(again), any_stores()},
                            from.data() + start, bytes);
        std::vector<void*> all;
        const std::size_t places = 2 + random() % 2;
        for (std::size_t k = 0; k < places; ++k) all.push_back(three[k].data() + moved(three[k]));
        kernels::copy_to_all(all, from.data() + start, bytes, any_stores());
        INFO("bytes " << bytes << " from " << start << ", " << behind << " behind" << (abreast ? ", abreast" : ""));
        for (const Bytes* to : {&one, &past, &fetched, &two, &again}) CHECK(*to == expected(*to));
        for (std::size_t k = 0; k < places; ++k) CHECK(three[k] == expected(three[k]));
      }
    }
  }
}

TEST_CASE("a copy to two places moves all bytes to both, and no others") {
  std::mt19937_64 random(rotating_seed());
  const Bytes from = random_bytes(random, 1024);
  const auto check = [&](const kernels::ReduceTable& table, Stores first, Stores second, std::size_t bytes) {
    const std::size_t from_offset = random() % kMargin, first_offset = random() % kMargin,
                      second_offset = random() % kMargin;
    Bytes one(1024, kPoison), two = one, expected_one = one, expected_two = one;
    std::memcpy(expected_one.data() + first_offset, from.data() + from_offset, bytes);
    std::memcpy(expected_two.data() + second_offset, from.data() + from_offset, bytes);
    table.copy_twice({one.data() + first_offset, first}, {two.data() + second_offset, second},
                     from.data() + from_offset, bytes);
    INFO(table.name << ": bytes " << bytes << " from " << from_offset << " to " << first_offset << ", "
                    << second_offset);
    CHECK(one == expected_one);
    CHECK(two == expected_two);
  };
  for (const auto* table : tables()) {
    for (const Stores first : {Stores::plain, Stores::streaming}) {
      for (const Stores second : {Stores::plain, Stores::streaming}) {
        for (const std::size_t bytes : {0, 1, 2, 63, 64, 65, 127, 130, 257, 700}) {
          for (int times = 0; times < 20; ++times) check(*table, first, second, bytes);
        }
      }
    }
  }
}

TEST_CASE("halves: all instruction sets agree on every value beside every awkward one") {
  std::vector<std::uint16_t> awkward;
  for (const unsigned exponent : {0x0000, 0x0400, 0x0080, 0x3c00, 0x3f80, 0x7800, 0x7b80, 0x7c00, 0x7f00, 0x7f80}) {
    for (const unsigned fraction : {0x000, 0x001, 0x002, 0x03f, 0x040, 0x07f}) {
      for (const unsigned sign : {0x0000, 0x8000}) {
        awkward.push_back(static_cast<std::uint16_t>(sign | (exponent + fraction)));
      }
    }
  }
  compare_instruction_sets(awkward, {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max});
}

TEST_CASE("halves: all instruction sets agree on the sum of every pair", "[.full]") {
  std::vector<std::uint16_t> every(1 << 16);
  std::iota(every.begin(), every.end(), std::uint16_t{0});
  compare_instruction_sets(every, {ReduceOp::sum});
}
