// SPDX-License-Identifier: Apache-2.0
// Values as other ranks pack them, of every kind that Serial knows.
#include <deque>
#include <map>
#include <rondo/trainer/gather.hpp>
#include <set>
#include <tuple>
#include <variant>

#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

enum class Kind : std::uint8_t { one, other };

struct Value {
  std::string name{};
  bool is_set = false;
  std::map<std::string, std::vector<std::int16_t>> lists{};
  std::optional<std::variant<double, std::string, bool>> label{};
  std::deque<std::pair<Kind, std::array<bool, 2>>> pairs{};
  std::set<std::tuple<std::uint64_t, std::string>> places{};
  std::vector<bool> marks{};
  std::basic_string<bool> more{};
};

}  // namespace
}  // namespace rondo::fuzz

using rondo::fuzz::Value;
template <>
struct rondo::trainer::Serial<Value> : SerialFields<&Value::name, &Value::is_set, &Value::lists, &Value::label,
                                                    &Value::pairs, &Value::places, &Value::marks, &Value::more> {};

namespace rondo::fuzz {

// What is taken is written again, and read as the same.
void run_values(Bytes input) {
  namespace detail = trainer::detail;
  std::vector<std::byte> bytes;
  detail::write_count(bytes, detail::type_mark<Value>());
  detail::write_bytes(bytes, input);
  std::vector<std::byte> written;
  if (!accepts([&] { written = detail::packed(detail::unpacked<Value>(bytes, 1)); })) return;
  expect(written.size() <= bytes.size(), "a value is more than was read");
  expect(detail::packed(detail::unpacked<Value>(written, 1)) == written, "a value comes back as another");
}

std::vector<std::string> values_seeds() {
  const Value full{.name = "name",
                   .is_set = true,
                   .lists = {{"a", {1, 2}}, {"b", {}}},
                   .label = "label",
                   .pairs = {{Kind::other, {true, false}}},
                   .places = {{7, "x"}, {8, "y"}},
                   .marks = {true, false},
                   .more = {true}};
  std::vector<std::string> seeds;
  for (const Value& value : {Value{}, full})
    seeds.push_back(text_of(trainer::detail::packed(value)).substr(sizeof(std::uint64_t)));
  return seeds;
}

}  // namespace rondo::fuzz
