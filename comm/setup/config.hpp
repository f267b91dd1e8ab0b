// SPDX-License-Identifier: Apache-2.0
// Every knob of the communicator, read from the environment once per communicator. What peers can observe is rank 0's
// choice for all (see Agreement).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/base/pulse.hpp"
#include "comm/setup/tuning.hpp"

namespace rondo::comm {

struct Transport;

struct Config {
  std::string transport;  // RONDO_TRANSPORT: a row of the transport table, alone; empty: per pair the first that works
  std::string algorithm;  // RONDO_ALGORITHM: a row of the algorithm table, used wherever it applies
  std::string protocol;   // RONDO_PROTOCOL: simple, ll, ll128, window or push, on devices wherever it applies
  std::uint64_t slice_bytes = 128 << 10;  // RONDO_SLICE_BYTES: one FIFO slot, 64 B to 16 MiB
  std::uint64_t slots = 8;                // RONDO_FIFO_SLOTS: per link, 2 to 64
  std::uint64_t segment_bytes =
      64 << 20;                 // RONDO_SEGMENT_BYTES: bound of a node's FIFOs for collectives; slots shrink to fit
  std::uint32_t spin = 600;     // RONDO_SPIN: polls before yielding, when every rank has a core
  std::uint32_t yields = 50;    // RONDO_YIELDS: yields before sleeping
  bool leaves_rseq = true;      // RONDO_RSEQ=keep: not even where ranks outnumber cores, see node/meeting/rseq.hpp
  std::string flight_recorder;  // RONDO_FLIGHT_RECORDER: directory for rank<r>.json on failure
  int record_fd = -1;           // RONDO_RECORD_FD: a socket to rondorun, for the same
  Tuning tuning;                // RONDO_TUNING: a file that rondo-tune wrote

  // RONDO_LINK_PATIENCE_MS: how long another host may leave probes unanswered, 1500 to 600000.
  std::uint32_t link_patience_ms = static_cast<std::uint32_t>(kLinkPatience.count());

  bool encrypt = false;  // RONDO_ENCRYPT=1: connections between ranks over TCP; read by who makes Bootstrap::encryption

  static Config from_environment(const std::vector<Transport>& known);
};

}  // namespace rondo::comm
