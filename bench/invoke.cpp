// SPDX-License-Identifier: Apache-2.0
#include "bench/cases.hpp"

namespace rondo::bench {
namespace {

template <class Verb>
void call_once(Verb& verb, const Cell& c, const void* send, void* recv, Stream stream) {
  verb.submit({.collective = c.what->collective,
               .send = send,
               .recv = recv,
               .count = c.count,
               .dtype = c.dtype,
               .op = operator_of(c.op, c.rank),
               .root = c.root,
               .stream = stream});
}

void pass_on(Group& group, const Cell& c, const void* send, void* recv, Stream stream) {
  group.send(send, c.count, c.dtype, (c.rank + 1) % c.world_size, stream);
  group.recv(recv, c.count, c.dtype, (c.rank + c.world_size - 1) % c.world_size, stream);
}

}  // namespace

void invoke(Communicator& communicator, const Cell& cell, const void* send, void* recv, int times, Stream stream) {
  const bool passes_on = cell.row().is_message();
  if (times == 1 && !passes_on) return call_once(communicator, cell, send, recv, stream);
  Group group = communicator.group();
  for (int i = 0; i < times; ++i) {
    if (passes_on) {
      pass_on(group, cell, send, recv, stream);
    } else {
      call_once(group, cell, send, recv, stream);
    }
  }
  group.end();
}

}  // namespace rondo::bench
