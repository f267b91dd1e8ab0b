// SPDX-License-Identifier: Apache-2.0
#include "bench/cases.hpp"

namespace rondo::bench {
namespace {

template <class Verb>
void call_once(Verb& verb, const Cell& c, const void* send, void* recv) {
  verb.submit({.collective = c.what->collective,
               .send = send,
               .recv = recv,
               .count = c.count,
               .dtype = c.dtype,
               .op = operator_of(c.op, c.rank),
               .root = c.root});
}

void pass_on(Group& group, const Cell& c, const void* send, void* recv) {
  group.send(send, c.count, c.dtype, (c.rank + 1) % c.world_size);
  group.recv(recv, c.count, c.dtype, (c.rank + c.world_size - 1) % c.world_size);
}

}  // namespace

void invoke(Communicator& communicator, const Cell& cell, const void* send, void* recv, int times) {
  const bool passes_on = cell.what->collective == Collective::send;
  if (times == 1 && !passes_on) return call_once(communicator, cell, send, recv);
  Group group = communicator.group();
  for (int i = 0; i < times; ++i) {
    if (passes_on) {
      pass_on(group, cell, send, recv);
    } else {
      call_once(group, cell, send, recv);
    }
  }
  group.end();
}

}  // namespace rondo::bench
