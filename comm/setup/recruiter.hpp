// SPDX-License-Identifier: Apache-2.0
// Where processes wait that want to join a job, and how a communicator takes them in. Owned by comm; rendezvous' client
// is one.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/error.hpp>
#include <rondo/store.hpp>

namespace rondo {

// A communicator that is to be, as its members and those who join it learn of it.
struct Growth {
  std::string name{};  // unique in the job; empty: nobody waits
  std::uint32_t generation = 0;
  std::vector<int> job_ranks{};  // by rank: those of the communicator that grows, then those who join
  // Its ranks meet in exchanges called "<key>/…"; the one called "<key>/made" ends the growth.
  std::string key() const { return name + '@' + std::to_string(generation); }
};

// A communicator that a rank has and others may not, as somebody died before all knew that all have it. Who has it
// looks whether others have given it up; who has given it up says so.
struct Doubt {
  std::string growth{};   // its key; empty: there is no doubt
  std::string instead{};  // under this name they ask who survived the smaller one; empty: this rank has given it up
  int members = 0;        // of the smaller one
};

struct Survived {
  std::vector<int> ranks{};  // in the communicator that was asked for
  bool in_smaller = false;   // they are the smaller one's, and go on under its name; its ranks are the same there
};

class Recruiter {
 public:
  virtual ~Recruiter() = default;
  // As Store::survivors(), where there is a doubt.
  virtual Survived survivors(std::string_view name, int index, std::span<const int> members, const Doubt& doubt,
                             Store::Deadline deadline) = 0;
  // Rank 0's: takes in that many of those who wait, in the order in which they came, and waits for them; 0: all that
  // wait now, which may be nobody. `members`: by rank, their ranks in the job. timeout: not so many came.
  virtual Growth admit(std::span<const int> members, int joiners, std::uint32_t generation,
                       Store::Deadline deadline) = 0;
  // Throws why a growth has failed for all, if it has: one of its ranks is gone, or gave up.
  virtual void check(const Growth& growth) = 0;
  // Throws which rank of the job's first communicator is lost, if the server knows one. unsupported: it does not tell.
  virtual void check_first_ranks() = 0;
  // Fails it for all: these members of the communicator that grows are lost. Called from another thread while they
  // meet.
  virtual void missing(const Growth& growth, std::span<const int> members) = 0;
  // Fails it for all, unless it is made; one that has failed already keeps its error.
  virtual void give_up(const Growth& growth, const Error& why) noexcept = 0;
};

}  // namespace rondo
