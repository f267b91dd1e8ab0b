// SPDX-License-Identifier: Apache-2.0
// The secret of a job: 256 bits that every rank and the server hold. It travels by inherited descriptor or by a file
// of mode 0600, never in argv, and nothing here prints it. It lies in memory that no core dump holds.
#pragma once
#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <rondo/export.hpp>

#include "comm/base/fd.hpp"
#include "comm/setup/authenticator.hpp"
#include "rendezvous/kept_key.hpp"

namespace rondo::rendezvous {

class RONDO_API Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  static Secret generate();
  // 64 hexadecimal digits. Error(invalid_argument) when group or others may read the file, other than by mode 0440 for
  // a group of ours, or it holds anything else.
  static Secret from_file(const std::filesystem::path& path);
  static Secret from_fd(int fd);  // the same digits, from a memfd or a pipe; the descriptor stays the caller's
  static Secret from_hex(std::string_view digits);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  Fd to_memfd() const;  // sealed against changes, inherited by child processes
  // Mode 0600. invalid_argument where there is a file of this name.
  void to_file(const std::filesystem::path& path) const;
  std::string to_hex() const;  // for such files alone

  const std::array<std::byte, kBytes>& bytes() const { return *bytes_; }

 private:
  Secret() = default;
  KeptKey bytes_{};
};

// Keys of different purposes or contexts tell nothing of each other, or of the secret.
KeptKey derive_key(const Secret& secret, std::string_view purpose, std::string_view context);

// HMAC-SHA256 with a key derived from the secret and `context`; equal arguments give equal signatures anywhere.
RONDO_API std::shared_ptr<const Authenticator> make_authenticator(const Secret& secret, std::string_view context);

}  // namespace rondo::rendezvous
