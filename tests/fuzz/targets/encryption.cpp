// SPDX-License-Identifier: Apache-2.0
// TLS between ranks and server, where somebody sits on the line: a stranger at one end, or one who changes bytes.
#include <array>
#include <cerrno>

#include "rendezvous/tls.hpp"
#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

using rendezvous::Tls;
using rendezvous::TlsSession;

constexpr rendezvous::Digest kKey{std::byte{7}};

// A stranger without the key says something, in pieces; it never has a connection.
void pretend(Tls::End end, Script& script) {
  TlsSession session(end, kKey);
  long ended = session.tls().shake_hands();
  while (!script.empty()) {
    session.feed(script.block());
    const long now = session.tls().shake_hands();
    expect(now != 0, "a stranger has shaken hands");
    expect(ended == -EAGAIN || now == ended, "an end that is none");
    ended = now;
  }
  std::array<std::byte, 16> some{};
  expect(session.tls().read(some) < 0, "bytes of a stranger's are taken");
}

// What one end says to the other, changed once: `skip` bytes on, so many of them are lost and others put there.
class Line {
 public:
  explicit Line(Script& script)
      : direction_(script.byte() % 2),
        skip_(script.number<std::uint16_t>()),
        lost_(script.byte()),
        put_(text_of(script.block())) {}
  void carry(TlsSession& from, TlsSession& to, unsigned direction) {
    std::string bytes = from.output().take();
    if (direction == direction_ && !done_) {
      const std::size_t at = skip_;
      skip_ -= std::min(skip_, bytes.size());
      if (at < bytes.size()) {
        const std::string before = bytes;
        bytes.replace(at, lost_, put_);
        changed_ = bytes != before;
        done_ = true;
      }
    }
    to.feed(as_bytes(bytes));
  }
  bool changed() const { return changed_; }

 private:
  unsigned direction_;
  std::size_t skip_, lost_;
  std::string put_;
  bool done_ = false, changed_ = false;
};

std::string read_all(TlsSession& session) {
  std::string all;
  std::array<std::byte, 64> some{};
  for (long got = 0; (got = session.tls().read(some)) > 0;)
    all += text_of(Bytes(some).first(static_cast<std::size_t>(got)));
  return all;
}

void meddle(Script& script) {
  Line line(script);
  std::array<TlsSession, 2> ends{TlsSession(Tls::End::connecting, kKey), TlsSession(Tls::End::accepting, kKey)};
  std::array<long, 2> shaken{-EAGAIN, -EAGAIN};
  for (int flight = 0; flight < 6; ++flight)
    for (unsigned end = 0; end < 2; ++end) {
      if (shaken[end] == -EAGAIN) shaken[end] = ends[end].tls().shake_hands();
      line.carry(ends[end], ends[1 - end], end);
    }
  const bool met = shaken[0] == 0 && shaken[1] == 0;
  expect(met || line.changed(), "two that have the key do not come together");
  if (!met) return;
  const std::string said = text_of(script.rest());
  for (unsigned end = 0; end < 2; ++end) {
    const bool written = ends[end].tls().write(as_bytes(said)) == 0;  // not by one that has read what was changed
    expect(written || line.changed(), "nothing can be written");
    line.carry(ends[end], ends[1 - end], end);
    const std::string heard = read_all(ends[1 - end]);
    expect(said.starts_with(heard), "what was changed on its way is taken");
    expect(heard == said || line.changed(), "what was said is not heard");
  }
}

}  // namespace

void run_tls(Bytes input) {
  Script script(input);
  const unsigned what = script.byte() % 3;
  if (what == 2) return meddle(script);
  pretend(what == 0 ? Tls::End::connecting : Tls::End::accepting, script);
}

// What the true ends say to each other, and lines on which something changes.
std::vector<std::string> tls_seeds() {
  TlsSession client(Tls::End::connecting, kKey), server(Tls::End::accepting, kKey);
  const auto piece = [](const std::string& bytes) { return static_cast<char>(bytes.size()) + bytes; };
  client.tls().shake_hands();
  const std::string hello = client.output().take();
  server.feed(as_bytes(hello));
  server.tls().shake_hands();
  const std::string answer = server.output().take();
  const std::string nowhere = std::string("\x02\0\xff\xff", 4);
  return {std::string(1, '\0') + piece(answer), "\1" + piece(hello), nowhere + std::string(2, '\0') + "words",
          std::string("\x02\0\x20\0\1\1x", 7) + "words", std::string("\x02\1\x20\1\1\1x", 7) + "words"};
}

}  // namespace rondo::fuzz
