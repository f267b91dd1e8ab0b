// SPDX-License-Identifier: Apache-2.0
// Values of C++ types between ranks.
#include <rondo/trainer/values.hpp>

#include <deque>
#include <list>
#include <map>
#include <set>
#include <unordered_map>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::contains;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using rondo::test::run_over;
using rondo::test::sentences;
using namespace rondo::trainer;

struct Point {
  std::int16_t x, y;
  bool operator==(const Point&) const = default;
};
struct Sample {
  std::string name;
  std::map<std::string, std::vector<Point>> shapes;
  std::optional<std::variant<double, std::string>> label;
  bool operator==(const Sample&) const = default;
};

}  // namespace

template <>
struct rondo::trainer::Serial<Sample> : SerialFields<&Sample::name, &Sample::shapes, &Sample::label> {};

namespace {

template <class T>
void comes_back(const T& value) {
  const auto bytes = detail::packed(value);
  CHECK(detail::unpacked<T>(bytes, 0) == value);
  // Every beginning of it is refused, whatever count it holds.
  for (std::size_t count = 0; count < bytes.size(); ++count)
    CHECK_THROWS_AS(detail::unpacked<T>(std::span(bytes).first(count), 0), rondo::Error);
}

Sample sample(int number) {
  const auto n = static_cast<std::size_t>(number);
  Sample one{std::string(n, 'n'), {{"a", std::vector<Point>(n, {1, 2})}, {"b", {}}}, {}};
  if (number % 2 == 1) one.label = std::variant<double, std::string>(std::string("odd"));
  return one;
}

}  // namespace

TEST_CASE("values of every kind come back, and half of one is refused") {
  comes_back(7);
  comes_back(Point{1, -2});
  comes_back(std::string("text\0more", 9));
  comes_back(std::vector<double>{1, 2, 3});
  comes_back(std::vector<double>{});
  comes_back(std::vector<bool>{true, false, true});
  comes_back(std::vector<std::vector<std::string>>{{"a", ""}, {}});
  comes_back(std::array<std::string, 2>{"a", "bc"});
  comes_back(std::array<int, 3>{1, 2, 3});
  comes_back(std::map<std::string, int>{{"a", 1}, {"b", 2}});
  comes_back(std::unordered_map<int, std::string>{{1, "a"}, {2, "b"}});
  comes_back(std::multimap<int, int>{{1, 2}, {1, 3}});
  comes_back(std::set<std::string>{"a", "b"});
  comes_back(std::list<int>{3, 1});
  comes_back(std::deque<std::string>{"x"});
  comes_back(std::tuple<int, std::string, std::vector<float>>{1, "a", {2, 3}});
  comes_back(std::pair<std::string, std::optional<int>>{"a", 3});
  comes_back(std::optional<std::string>{});
  comes_back(std::optional<std::string>{"a"});
  using Either = std::variant<std::monostate, int, std::string, std::vector<int>>;
  comes_back(std::vector<Either>{{}, 5, "text", std::vector<int>{1}});
  comes_back(sample(3));
  comes_back(std::vector<Sample>{sample(0), sample(1)});
}

TEST_CASE("a count or an alternative that cannot be allocates nothing") {
  const auto refused = [](auto value, std::uint64_t number) {
    auto bytes = detail::packed(value);
    std::memcpy(bytes.data() + 8, &number, sizeof number);
    CHECK_THROWS_AS(detail::unpacked<decltype(value)>(bytes, 0), rondo::Error);
  };
  for (const std::uint64_t number : {std::uint64_t{1} << 61, ~std::uint64_t{0}, std::uint64_t{100}}) {
    refused(std::vector<double>{1}, number);
    refused(std::vector<std::string>{"a"}, number);
    refused(std::vector<bool>{true}, number);
    refused(std::map<int, int>{{1, 2}}, number);
    refused(std::variant<int, std::string>{1}, number);
  }
}

TEST_CASE("a bool is one, whatever byte another rank sends for it") {
  const auto of_byte_2 = [](const auto& value) {
    auto bytes = detail::packed(value);
    bytes.back() = std::byte{2};
    return detail::unpacked<std::decay_t<decltype(value)>>(bytes, 0);
  };
  CHECK(detail::packed(of_byte_2(true)) == detail::packed(true));
  CHECK(detail::packed(of_byte_2(std::array<bool, 2>{true, false})) == detail::packed(std::array<bool, 2>{true, true}));
  CHECK(detail::packed(of_byte_2(std::basic_string<bool>(2, true))) ==
        detail::packed(std::basic_string<bool>(2, true)));
}

TEST_CASE("a value goes from one rank to all, from all to one, and is dealt out") {
  for (const char* transport : {"shm", "tcp", "sim"}) {
    INFO(transport);
    CHECK(sentences(run_over(transport, 3, [](Communicator& comm) {
            for (int root = 0; root < 3; ++root) {
              expect(broadcast_value(comm, sample(comm.rank() + 4), root) == sample(root + 4), "broadcast");
              const auto all = gather_value(comm, sample(comm.rank()), root);
              expect(all == (comm.rank() == root ? std::vector<Sample>{sample(0), sample(1), sample(2)}
                                                 : std::vector<Sample>{}),
                     "gather");
              std::vector<Sample> dealt;
              if (comm.rank() == root) dealt = {sample(5), sample(6), sample(7)};
              expect(scatter_value(comm, dealt, root) == sample(5 + comm.rank()), "scatter");
            }
          })) == no_errors(3));
  }
}

TEST_CASE("values between two ranks come in the order they were sent in") {
  for (const char* transport : {"shm", "tcp"}) {
    INFO(transport);
    CHECK(sentences(run_over(transport, 2, [](Communicator& comm) {
            for (int i = 0; i < 20; ++i) {
              if (comm.rank() == 0) {
                send_value(comm, sample(i * 50), 1);
                expect(recv_value<std::string>(comm, 1) == std::to_string(i), "answer");
              } else {
                expect(recv_value<Sample>(comm, 0) == sample(i * 50), "value");
                send_value(comm, std::to_string(i), 0);
              }
            }
          })) == no_errors(2));
  }
}

TEST_CASE("values of other types, for ranks that are not there or of another number are refused") {
  const auto said = each_rank(2, [](Communicator& comm) {
    if (comm.rank() == 0) send_value(comm, std::vector<float>{1}, 1);
    if (comm.rank() == 1) recv_value<std::vector<std::int32_t>>(comm, 0);
  });
  CHECK(contains(said[1], "the value of rank 0 is of another type than here"));
  for (const std::string& one : each_rank(2, [](Communicator& comm) { scatter_value(comm, std::vector<int>{1}, 1); }))
    CHECK(contains(one, "scatter_value: rank 1 has 1 values for 2 ranks"));
  for (const std::string& one : each_rank(2, [](Communicator& comm) { broadcast_value(comm, 1, 2); }))
    CHECK(contains(one, "broadcast_value: there is no rank 2 in a world of 2"));
  for (const std::string& one : each_rank(2, [](Communicator& comm) { gather_value(comm, 1, -1); }))
    CHECK(contains(one, "gather_value: there is no rank -1"));
  for (const std::string& one :
       sentences(run_over("sim", 2, [](Communicator& comm) { send_value(comm, 1, 1 - comm.rank()); })))
    CHECK(contains(one, "send_value: this communicator is on a device"));
  const auto types = each_rank(2, [](Communicator& comm) {
    if (comm.rank() == 0) all_gather_value(comm, std::int32_t{1});
    if (comm.rank() == 1) all_gather_value(comm, 1.0F);  // of the same size
  });
  CHECK(contains(types[0], "the value of rank 1 is of another type"));
  CHECK(contains(types[1], "the value of rank 0 is of another type"));
}
