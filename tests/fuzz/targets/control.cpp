// SPDX-License-Identifier: Apache-2.0
// Control messages from a peer of another node, on the monitor's thread, and what ranks say of their calls.
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <future>
#include <utility>

#include "comm/team/control.hpp"
#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

using namespace comm;

constexpr std::size_t kMostBytes = 4096;  // of one message, and more

bool is_ours(const Signature& signature) { return static_cast<int>(signature.collective) < kCollectiveCount; }

// What control tells of, until the peer's end; the first thing that is wrong with it.
class Listener {
 public:
  Control::Events events() {
    const auto check = [this](const Signature& signature) {
      if (!is_ours(signature)) complaint_ = "a collective that is none is passed on";
      describe(signature);
    };
    Control::Events all;
    all.failed = [](int, ErrorCode code, const Culprits& culprits, std::string_view sentence) {
      const Error error(code, std::string(sentence), culprits.one, culprits.list());
      accepts([&] { throw error; });
    };
    all.waiting = [check](int, const Signature& signature, std::uint64_t) { check(signature); };
    all.departed = [this, check](int, const Signature& signature, bool) {
      check(signature);
      finish();  // who has said goodbye ends without being lost
    };
    all.unmapped = [](int) {};
    all.attends = [](int, std::uint64_t, std::uint64_t) {};
    all.apart = [](int, std::uint64_t) {};
    all.aborted = [](int, std::uint64_t) {};
    all.asked = [check](int, std::uint64_t, const Signature& signature) { check(signature); };
    all.answered = [check](int, std::uint64_t, int, const Signature& signature, std::uint64_t) { check(signature); };
    all.lost = [this](int, std::string_view) { finish(); };
    return all;
  }
  void wait_for_end() { end_.get_future().wait(); }
  const std::string& complaint() const { return complaint_; }

 private:
  void finish() {
    if (!std::exchange(finished_, true)) end_.set_value();
  }
  std::promise<void> end_;
  bool finished_ = false;
  std::string complaint_;
};

}  // namespace

void run_control(Bytes input) {
  static const auto monitor = std::make_shared<Monitor>();
  std::array<int, 2> ends{};
  expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0, "no sockets");
  Fd peer(ends[1]);
  Listener listener;
  Control control(monitor, listener.events());
  control.add(1, Fd(ends[0]));
  static_cast<void>(::send(peer.get(), input.data(), input.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  peer = Fd();
  control.start();
  listener.wait_for_end();
  control.stop();  // no event comes from here on
  expect(listener.complaint().empty(), listener.complaint());
}

// What a Control says of everything there is to say.
std::vector<std::string> control_seeds() {
  const auto monitor = std::make_shared<Monitor>();
  const auto said = [&](const std::function<void(Control&)>& say) {
    std::array<int, 2> ends{};
    expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0, "no sockets");
    const Fd peer(ends[1]);
    Control control(monitor, {});
    control.add(1, Fd(ends[0]));
    say(control);
    std::string bytes(kMostBytes, '\0');
    bytes.resize(
        static_cast<std::size_t>(std::max<ssize_t>(0, ::recv(peer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT))));
    return bytes;
  };
  const Signature signature{.sequence = 7, .count = 3};
  return {said([&](Control& c) { c.announce_failure(ErrorCode::mismatch, Culprits(2), "no"); }),
          said([&](Control& c) { c.announce_waiting(signature); }),
          said([&](Control& c) { c.announce_departure(signature); }),
          said([&](Control& c) { c.announce_unmapped(); }),
          said([&](Control& c) { c.announce_attendance(4, 2); }),
          said([&](Control& c) { c.announce_apart(1); }),
          said([&](Control& c) { c.announce_abort(3); }),
          said([&](Control& c) { c.ask(3, signature); }),
          said([&](Control& c) { c.answer(1, 3, 1, signature, 3); })};
}

void run_signature(Bytes input) {
  Signature one, other;
  if (input.size() < 2 * sizeof one) return;
  std::memcpy(&one, input.data(), sizeof one);
  std::memcpy(&other, input.data() + sizeof one, sizeof other);
  // Both may be a peer's.
  const std::string sentence = compare(0, one, 1, other);
  expect(!describe(one).empty(), "a call without a name");
  expect(!(one == other) || sentence.empty(), "what is equal differs");
  expect(sentence.find('\0') == std::string::npos, "a name that is none");
}

std::vector<std::string> signature_seeds() {
  const Signature one{.sequence = 7, .count = 3, .collective = Collective::broadcast, .root = 1};
  const Signature other{.sequence = 7, .count = 3, .collective = Collective::send, .root = 5};
  const auto bytes = [](const Signature& s) { return text_of(std::as_bytes(std::span(&s, 1))); };
  return {bytes(one) + bytes(other), bytes(one) + bytes(one)};
}

}  // namespace rondo::fuzz
