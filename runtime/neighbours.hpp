// SPDX-License-Identifier: Apache-2.0
// How ranks of one node and one user learn rank 0's port and secret when no launcher of ours hands them on: over a
// Unix socket in the abstract namespace, named after the user and the meeting. Nothing is left on disk, and both sides
// check that the other belongs to the same user.
#pragma once
#include <string>

#include "runtime/meeting_point.hpp"

namespace rondo::runtime {

class NeighbourPoint final : public MeetingPoint {
 public:
  // `meeting`: what the ranks were given to meet by; `job`: the server's, and whether it encrypts.
  NeighbourPoint(std::string meeting, std::string job, bool encrypted)
      : meeting_(std::move(meeting)), job_(std::move(job)), encrypted_(encrypted) {}
  std::string key() const override { return "neighbours|" + meeting_; }
  std::shared_ptr<Hosting> try_host(int world_size) override;
  std::optional<rendezvous::Endpoint> find(std::string& reason, Store::Deadline deadline) override;
  bool may_be_stale() const override { return true; }
  std::string describe() const override;

 private:
  std::string meeting_, job_;
  bool encrypted_;
};

}  // namespace rondo::runtime
