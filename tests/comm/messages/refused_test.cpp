// SPDX-License-Identifier: Apache-2.0
// Messages that end with an error, and those that are refused: whom and what it names.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <future>
#include <limits>
#include <vector>

#include <rondo/communicator.hpp>

#include "tests/comm/messages/cases.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

TEST_CASE("messages: a message's own deadline names whom it waited for, and its tag") {
  const Kind kind = any_kind();
  const bool blocking = GENERATE(true, false);
  INFO(kind << (blocking ? ", blocking" : ", async"));
  const auto start = std::chrono::steady_clock::now();
  std::promise<void> given_up;
  const auto stays = given_up.get_future().share();
  const auto errors = run_world(kind, 2, {}, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      stays.wait_for(30s);
      return;
    }
    std::vector<int> got(kShort);
    const auto error = thrown_by([&] {
      if (blocking) {
        comm.within(100ms).recv(got, 1, 42);
      } else {
        comm.async(100ms).recv(got, 1, 42).wait();
      }
    });
    given_up.set_value();
    if (error) std::rethrow_exception(error);
  });
  CHECK(code_of(errors[0]) == ErrorCode::timeout);
  CHECK(contains(sentence_of(errors[0]), "rank 0 has waited "));
  CHECK(contains(sentence_of(errors[0]), " s in recv of 3 i32 from rank 1, tag 42"));
  CHECK(std::chrono::steady_clock::now() - start < 20s);
}

TEST_CASE("messages: a rank that leaves fails those that wait for it, and a receive from any source once all have") {
  const Kind kind = any_kind();
  const bool any = GENERATE(true, false);
  INFO(kind << (any ? ", any" : ", named"));
  const auto errors = run_world(kind, 3, {}, [&](Communicator& comm) {
    if (comm.rank() != 0) return;
    std::vector<int> got(kShort);
    comm.recv(got, any ? kAnySource : 1, 2);
  });
  CHECK(code_of(errors[0]) == ErrorCode::peer_lost);
  CHECK(contains(sentence_of(errors[0]),
                 any ? "all other ranks left while rank 0 was waiting in recv of 3 i32 from any rank, tag 2"
                     : "rank 1 left while rank 0 was waiting for it in recv of 3 i32 from rank 1, tag 2"));
}

TEST_CASE("messages: ends that differ fail every rank, with a tag and from any source too") {
  const Kind kind = any_kind();
  const std::size_t count = GENERATE(kShort, kLong);
  INFO(kind << ", " << count);
  const auto errors = run_world(kind, 2, {.timeout = 30s}, [&](Communicator& comm) {
    std::vector<int> data(count + 1);
    if (comm.rank() == 0) comm.send(std::span<const int>(data).first(count), 1, 6);
    if (comm.rank() == 1) comm.recv(std::span(data), kAnySource, 6);
    comm.barrier();
  });
  for (const auto& error : errors) {
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(contains(sentence_of(error), "rank 1 and rank 0 disagree on the count of send #1, tag 6"));
  }
}

TEST_CASE("messages: an abort ends those that wait, and a callback gets the error") {
  const Kind kind = any_kind();
  INFO(kind);
  const auto errors = run_world(kind, 2, {}, [&](Communicator& comm) {
    std::vector<int> got(kShort);
    Work work = comm.async().recv(got, 1 - comm.rank());
    std::promise<std::exception_ptr> told;
    work.on_done([&](std::exception_ptr error) { told.set_value(std::move(error)); });
    comm.barrier();
    if (comm.rank() == 1) comm.abort();
    auto future = told.get_future();
    expect(future.wait_for(30s) == std::future_status::ready, "no callback came");
    std::rethrow_exception(future.get());
  });
  for (const auto& error : errors) CHECK(code_of(error) == ErrorCode::aborted);
}

TEST_CASE("messages: a negative tag is refused by name, and costs that call alone") {
  const Kind kind = any_kind();
  INFO(kind);
  on_world(kind, 2, [](Communicator& comm) {
    std::array<int, 1> data{};
    const int peer = 1 - comm.rank();
    for (const int tag : {-1, std::numeric_limits<int>::min()}) {
      const std::string refusal = fmt::format("tag {} is negative: tags are 0 to 2147483647", tag);
      for (const auto& error :
           {thrown_by([&] { comm.recv(data, peer, tag); }), thrown_by([&] { comm.send(data, peer, tag); }),
            thrown_by([&] { comm.async().recv(data, kAnySource, tag); })}) {
        expect(code_of(error) == ErrorCode::invalid_argument && contains(sentence_of(error), refusal),
               sentence_of(error));
      }
    }
    comm.async().send(data, peer, std::numeric_limits<int>::max());
    comm.recv(data, peer, std::numeric_limits<int>::max());
    comm.barrier();
  });
}

TEST_CASE("messages: devices refuse tags and any source by name") {
  Options options;
  options.device = Device::sim();
  on_ranks(
      2,
      [](Communicator& comm) {
        std::array<int, 1> data{};
        struct Refused {
          int peer, tag;
          std::string named;
        };
        for (const Refused& refused : {Refused{kAnySource, 0, "kAnySource"}, Refused{1, 3, "no tags"}}) {
          const auto error = thrown_by([&] { comm.recv(data.data(), 1, DataType::i32, refused.peer, refused.tag); });
          expect(code_of(error) == ErrorCode::unsupported && contains(sentence_of(error), refused.named),
                 sentence_of(error));
        }
        comm.barrier();
        comm.synchronize();
      },
      options);
}
