// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/handshake.hpp"

#include "tests/comm/transport/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {
const Encounter kEncounter{5, 2, MeetingChannel::control, MeetingId{std::byte{1}}, MeetingId{std::byte{2}}};
}

TEST_CASE("handshake: both ends prove themselves") {
  const Membership members{"group", 1, 8, secret()};
  const Greeting greeting(members, kEncounter);
  Examination examination(members);
  const auto encounter = examination.read(greeting.hello());
  REQUIRE(encounter.has_value());
  CHECK(encounter->from == 5);
  CHECK(encounter->to == 2);
  CHECK(encounter->channel == MeetingChannel::control);
  CHECK(encounter->from_id == kEncounter.from_id);
  CHECK(encounter->to_id == kEncounter.to_id);
  const auto proof = greeting.answer(examination.challenge());
  REQUIRE(proof.has_value());
  CHECK(examination.accept(*proof));
}

TEST_CASE("handshake: any bit changed on the way breaks it") {
  const Membership members{"group", 1, 8, secret()};
  const Greeting greeting(members, kEncounter);
  for (std::size_t bit = 0; bit < 8 * kHelloBytes; ++bit) {
    Hello hello = greeting.hello();
    hello[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    Examination examination(members);
    if (!examination.read(hello)) continue;
    CHECK_FALSE(greeting.answer(examination.challenge()).has_value());  // the accepting end signed something else
  }
  for (std::size_t bit = 0; bit < 8 * kChallengeBytes; ++bit) {
    Examination examination(members);
    REQUIRE(examination.read(greeting.hello()));
    Challenge challenge = examination.challenge();
    challenge[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    CHECK_FALSE(greeting.answer(challenge).has_value());
  }
}

TEST_CASE("handshake: a secret that only one end knows, and none at all, are refused") {
  const Membership knows{"group", 1, 8, secret(1)};
  const Membership guesses{"group", 1, 8, GENERATE(secret(2), std::shared_ptr<const Authenticator>())};
  Examination honest(knows);
  const Greeting guess(guesses, kEncounter);
  REQUIRE(honest.read(guess.hello()));
  const Challenge challenge = honest.challenge();
  const auto forged = guess.answer(challenge);
  if (forged) CHECK_FALSE(honest.accept(*forged));

  Examination liar(guesses);
  const Greeting victim(knows, kEncounter);
  REQUIRE(liar.read(victim.hello()));
  CHECK_FALSE(victim.answer(liar.challenge()).has_value());
}

TEST_CASE("handshake: an accepting end's own MAC sent back to it is no proof, nor is an older proof") {
  const Membership members{"group", 1, 8, secret()};
  const Greeting greeting(members, kEncounter);
  Examination examination(members);
  REQUIRE(examination.read(greeting.hello()));
  const Challenge challenge = examination.challenge();
  Authenticator::Mac reflected{};
  std::copy(challenge.end() - kProofBytes, challenge.end(), reflected.begin());
  CHECK_FALSE(examination.accept(reflected));
  const auto proof = greeting.answer(challenge);
  Examination later(members);
  REQUIRE(later.read(greeting.hello()));
  later.challenge();
  CHECK_FALSE(later.accept(*proof));
}

TEST_CASE("handshake: names that only look alike are told apart by the transcript") {
  // Equal but for the name: a hello of one forwarded to the other would pass if the name were not signed.
  const Membership one{"a", 1, 8, secret()};
  const Membership two{"b", 1, 8, secret()};
  Examination examination(two);
  CHECK_FALSE(examination.read(Greeting(one, kEncounter).hello()).has_value());
}
