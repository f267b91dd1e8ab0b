// SPDX-License-Identifier: Apache-2.0
// While the ranks of a job make their first communicator nobody has connections with all of them but the server, which
// sees that one of them ends, also where no other rank of its host is left to see it.
#pragma once
#include <memory>

#include "comm/setup/recruiter.hpp"
#include "comm/transport/lookout.hpp"

namespace rondo::comm {

// Asks the server now and then. Without one (null) nobody would know.
Lookout look_for_lost(std::shared_ptr<Recruiter> server);

}  // namespace rondo::comm
