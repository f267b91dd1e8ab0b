// SPDX-License-Identifier: Apache-2.0
// Whom the server names to ranks that make connections: who was lost first, and does not come again.
#include <map>
#include <string>

#include "rendezvous/room.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using std::chrono::milliseconds;

namespace {

class Round final : private Replies {
 public:
  explicit Round(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) join(rank, false, {});
  }
  void join(int rank, bool again, Time now) {
    proto::Request request;
    proto::Join& join = *request.mutable_join();
    join.set_rank(rank);
    join.set_world_size(4);
    join.set_local_rank(-1);
    join.set_host("a");
    join.set_pid(static_cast<std::uint32_t>(100 + rank));
    join.set_instance("process " + std::to_string(rank));
    join.set_again(again);
    connections_[rank] = ++last_;
    request.set_timeout_ms(10'000);
    room_.request({last_, 1}, request, "10.0.0.1", now);
  }
  void lose(int rank, Time now) { room_.gone(connections_.at(rank), Presence::lost, "it closed the connection", now); }
  void leave(int rank, Time now) { room_.gone(connections_.at(rank), Presence::left, "", now); }
  // What rank 0 is told; no code: that nobody is lost.
  proto::Failure ask(Time now) {
    proto::Request request;
    request.mutable_loss();
    room_.request({connections_.at(0), 2}, request, "10.0.0.1", now);
    REQUIRE(answer_);
    return answer_->failure();
  }

 private:
  void send(Caller, SharedBody body) override {
    answer_.emplace();
    REQUIRE(answer_->ParseFromString(body->bytes()));
  }

  std::optional<proto::Reply> answer_{};
  Room room_{{.job = "test", .name = "server"}, *this};
  std::map<int, ConnectionId> connections_{};
  ConnectionId last_ = 0;
};

Time at(int ms) { return Time{} + milliseconds(ms); }

}  // namespace

TEST_CASE("the server names a rank that is lost once it has not come again for a while") {
  Round round(4);
  CHECK(round.ask(at(0)).code() == 0);
  round.lose(2, at(100));
  CHECK(round.ask(at(849)).code() == 0);
  const auto failure = round.ask(at(850));
  CHECK(failure.code() == static_cast<std::uint32_t>(ErrorCode::peer_lost));
  CHECK(failure.culprit() == 2);
  CHECK(failure.sentence() == "rank 2 (host a, pid 102) was lost: it closed the connection while the ranks met");
}

TEST_CASE("a client that comes again in time is not lost, and one that comes too late is lost no more") {
  Round round(4);
  const bool in_time = GENERATE(true, false);
  round.lose(2, at(100));
  if (!in_time) CHECK(round.ask(at(2000)).culprit() == 2);
  round.join(2, true, at(in_time ? 800 : 2100));
  CHECK(round.ask(at(5000)).code() == 0);
}

TEST_CASE("of several that are lost the first is named, as the others may have ended for it") {
  Round round(4);
  round.lose(3, at(100));
  round.lose(1, at(200));
  CHECK(round.ask(at(3000)).culprit() == 3);
}

TEST_CASE("who has said goodbye is not lost") {
  Round round(4);
  round.leave(1, at(100));
  CHECK(round.ask(at(3000)).code() == 0);
}
