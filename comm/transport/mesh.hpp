// SPDX-License-Identifier: Apache-2.0
// The meeting of ranks that share no memory: a TCP connection per pair for control, and one for data and one for
// messages where they are wanted, both ends proven to be of the same job. Runs in the caller's thread; once connected,
// peers speak non-blocking I/O on the native descriptors.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/store.hpp>

#include "comm/base/fd.hpp"
#include "comm/setup/authenticator.hpp"
#include "comm/setup/encryption.hpp"
#include "comm/transport/addresses.hpp"
#include "comm/transport/lookout.hpp"

namespace rondo {

// All sockets are non-blocking, CLOEXEC, TCP_NODELAY. When the peer is on another host and that vanishes, none of them
// fails for half an hour: `pulses` are for finding out, see comm/base/pulse.hpp. What a peer of another host has not
// read for so long, its buffers full, makes `control` fail: ask peer_takes() before sending what can wait.
struct MeshPeer {
  int rank = -1;
  Fd data;      // buffers of 4 MiB; none where none was wanted
  Fd messages;  // another like it, likewise
  Fd control;
  std::array<Fd, 2> pulses;  // nothing is sent on them; none where none were wanted
  // With encryption, over data, messages and control: only what goes through these is understood there.
  std::unique_ptr<SecureStream> data_stream{}, messages_stream{}, control_stream{};
};

struct MeshWish {  // the same at both ends
  int rank = -1;
  bool data = true;       // a second connection
  bool messages = false;  // another
  bool pulses = false;    // and two
};

struct MeshOptions {
  int rank = 0;
  int world_size = 1;
  std::string name;
  std::uint32_t generation = 0;
  std::vector<std::string> addresses;                  // numeric, local, most preferred first; empty: loopback
  std::uint16_t first_port = 0, last_port = 0;         // 0: any port
  std::shared_ptr<const Authenticator> authenticator;  // null: peers prove nothing
  std::shared_ptr<const Encryption> encryption{};      // null: plain connections
  std::chrono::milliseconds handshake_limit{5000};     // for whoever connects to prove itself
};

class Mesh {
 public:
  // Listens. invalid_argument: an address that is none; system: no port free, an address that is not ours.
  explicit Mesh(MeshOptions options);

  // Addresses, port and a random id, for every rank's `advertisements`.
  std::vector<std::byte> advertisement() const;

  // Connects with every rank in `peers`, all at once; the higher rank of a pair connects to the lower one, and tries
  // again until the deadline. Returns them in the order of `peers`. Once per Mesh: afterwards nobody listens.
  // timeout: names the missing ranks and what was tried, culprit() is the first; corrupt_message: an advertisement
  // that is none. Strangers, garbage and wrong secrets on the port are dropped and disturb nobody.
  std::vector<MeshPeer> connect(std::span<const Store::Bytes> advertisements, std::span<const MeshWish> peers,
                                Store::Deadline deadline, const Lookout& lookout = {});

 private:
  MeshOptions options_;
  Listeners listeners_;
  MeetingId id_{};
};

}  // namespace rondo
