// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/types.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace rondo::torch_backend {
namespace {

constexpr std::pair<at::ScalarType, DataType> kTypes[] = {
    {at::kFloat, DataType::f32},
    {at::kDouble, DataType::f64},
    {at::kHalf, DataType::f16},
    {at::kBFloat16, DataType::bf16},
    {at::kChar, DataType::i8},
    {at::kByte, DataType::u8},
    {at::kInt, DataType::i32},
    {at::kUInt32, DataType::u32},
    {at::kLong, DataType::i64},
    {at::kUInt64, DataType::u64},
    {at::kFloat8_e4m3fn, DataType::f8e4m3},
    {at::kFloat8_e5m2, DataType::f8e5m2},
};

std::optional<DataType> known(at::ScalarType type) {
  const auto* const row =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& r) { return r.first == type; });
  return row == std::end(kTypes) ? std::nullopt : std::optional(row->second);
}

std::optional<Element> as_parts(at::ScalarType type) {
  if (const auto dtype = known(type)) return Element{*dtype, 1};
  if (type == at::kComplexFloat) return Element{DataType::f32, 2};
  if (type == at::kComplexDouble) return Element{DataType::f64, 2};
  if (type == at::kBool) return Element{DataType::u8, 1};
  return std::nullopt;
}

double factor_of(const c10d::ReduceOp& op) {
  const auto& supplement = static_cast<const c10d::PreMulSumSupplement&>(*op.supplement_);
  return supplement.tensor_factor.defined() ? supplement.tensor_factor.item<double>() : supplement.double_factor;
}

struct Operator {
  c10d::ReduceOp::RedOpType op;
  const char* name;
  ReduceOp::Kind ours;
  // Of bytes that are 0 or 1: a sum is true where one is, a product where all are.
  std::optional<ReduceOp::Kind> of_bool;
};
const Operator kOperators[] = {
    {c10d::ReduceOp::SUM, "SUM", ReduceOp::sum, ReduceOp::max},
    {c10d::ReduceOp::AVG, "AVG", ReduceOp::average, std::nullopt},
    {c10d::ReduceOp::PRODUCT, "PRODUCT", ReduceOp::product, ReduceOp::min},
    {c10d::ReduceOp::MIN, "MIN", ReduceOp::min, ReduceOp::min},
    {c10d::ReduceOp::MAX, "MAX", ReduceOp::max, ReduceOp::max},
    {c10d::ReduceOp::BAND, "BAND", ReduceOp::bit_and, ReduceOp::min},
    {c10d::ReduceOp::BOR, "BOR", ReduceOp::bit_or, ReduceOp::max},
    {c10d::ReduceOp::BXOR, "BXOR", ReduceOp::bit_xor, ReduceOp::bit_xor},
    {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", ReduceOp::premultiplied_sum, std::nullopt},
};

const Operator& operator_of(const c10d::ReduceOp& op) {
  for (const Operator& row : kOperators) {
    if (row.op == op.op_) return row;
  }
  C10_THROW_ERROR(ValueError, "rondo: a reduce operation that is none of torch.distributed's");
}

bool takes_complex(const c10d::ReduceOp& op) {
  return op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM;
}

}  // namespace

Element element_of(at::ScalarType type) {
  return as_parts(type).value_or(Element{DataType::u8, c10::elementSize(type)});
}

Reduction reduction_of(std::string_view call, at::ScalarType type, const c10d::ReduceOp& op) {
  const auto element = as_parts(type);
  const Operator& row = operator_of(op);
  std::optional<ReduceOp::Kind> kind = row.ours;
  if (type == at::kBool) kind = row.of_bool;
  if (!kind || !element || (element->parts > 1 && !takes_complex(op)) || !is_supported(element->dtype, *kind)) {
    C10_THROW_ERROR(TypeError, c10::str("rondo: ", std::string(call), " cannot take ", row.name, " of ",
                                        c10::toString(type), " elements"));
  }
  if (*kind == ReduceOp::premultiplied_sum) return {*element, ReduceOp::premul_sum(factor_of(op))};
  return {*element, *kind};
}

}  // namespace rondo::torch_backend
