// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/system_error.hpp"
#include "rendezvous/crypto.hpp"

namespace rondo::rendezvous {
namespace {

constexpr std::size_t kDigits = 2 * Secret::kBytes;

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

// What stands in a pipe or a terminal by mistake would be waited for.
ssize_t read_within(int fd, char* into, std::size_t bytes) {
  constexpr int kLimitMs = 5000;
  pollfd waiting{fd, POLLIN, 0};
  if (::poll(&waiting, 1, kLimitMs) == 0) throw Error(ErrorCode::timeout, "nothing comes from it within 5 s");
  return ::read(fd, into, bytes);
}

// From offset 0 where the descriptor has offsets: the processes that inherit a memfd share one.
std::string read_some(int fd, std::size_t limit) {
  std::string text(limit, '\0');
  std::size_t have = 0;
  while (have < limit) {
    ssize_t got = ::pread(fd, text.data() + have, limit - have, static_cast<off_t>(have));
    if (got < 0 && errno == ESPIPE) got = read_within(fd, text.data() + have, limit - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("cannot read the job's secret");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_errno("cannot write the job's secret");
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

void write_hex(const Secret& secret, int fd) {
  std::string text = secret.to_hex();
  write_all(fd, text);
  wipe(std::as_writable_bytes(std::span(text)));
}

bool is_own_group(gid_t group) {
  if (group == ::getegid()) return true;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  if (::getgroups(static_cast<int>(groups.size()), groups.data()) < 0) return false;
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

// Mode 0440 is somebody's choice, as Kubernetes' for a pod's fsGroup; 0640 and 0644 are what a umask leaves.
bool is_kept_from_others(const struct stat& status) {
  const auto mode = status.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
  return (mode & (S_IRWXG | S_IRWXO)) == 0 || (mode == (S_IRUSR | S_IRGRP) && is_own_group(status.st_gid));
}

class DerivedAuthenticator final : public Authenticator {
 public:
  explicit DerivedAuthenticator(KeptKey key) : key_(std::move(key)) {}
  Mac sign(std::span<const std::byte> message) const override { return hmac(*key_, message); }
  void random(std::span<std::byte> out) const override { fill_random(out); }

 private:
  KeptKey key_;
};

}  // namespace

Secret Secret::generate() {
  Secret secret;
  fill_random(*secret.bytes_);
  return secret;
}

Secret Secret::from_hex(std::string_view digits) {
  const auto end = digits.find_first_of("\r\n");
  digits = digits.substr(0, end);
  if (digits.size() != kDigits || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a job's secret is one line of {} hexadecimal digits; this one has {} characters", kDigits,
                            digits.size()));
  }
  Secret secret;
  for (std::size_t i = 0; i < kBytes; ++i) {
    (*secret.bytes_)[i] = static_cast<std::byte>(value_of(digits[2 * i]) * 16 + value_of(digits[2 * i + 1]));
  }
  return secret;
}

Secret Secret::from_file(const std::filesystem::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_errno(fmt::format("cannot open the secret file {}", path.string()));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_errno(fmt::format("cannot examine {}", path.string()));
  if (!is_kept_from_others(status)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("others may open the secret file {} (mode {:o}); run chmod 600 on it and use a new secret",
                            path.string(), status.st_mode & 0777U));
  }
  try {
    return from_fd(file.get());
  } catch (const Error& error) {
    throw Error(error.error_code(), fmt::format("{}: {}", path.string(), error.what()));
  }
}

Secret Secret::from_fd(int fd) {
  std::string text = read_some(fd, kDigits + 2);
  Secret secret = from_hex(text);
  wipe(std::as_writable_bytes(std::span(text)));
  return secret;
}

std::string Secret::to_hex() const {
  std::string text;
  text.reserve(kDigits);
  for (const std::byte byte : *bytes_) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

Fd Secret::to_memfd() const {
  Fd memory(::memfd_create("rondo-secret", MFD_ALLOW_SEALING));
  if (!memory) throw_errno("cannot create memory for the job's secret (memfd_create)");
  write_hex(*this, memory.get());
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    throw_errno("cannot seal the job's secret");
  }
  return memory;
}

void Secret::to_file(const std::filesystem::path& path) const {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file && errno == EEXIST) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the file {} is there already, and a job may use it as its secret: remove it, or choose "
                            "another name",
                            path.string()));
  }
  if (!file) throw_errno(fmt::format("cannot create the secret file {}", path.string()));
  try {
    write_hex(*this, file.get());
    write_all(file.get(), "\n");
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

// HKDF (RFC 5869): extract with a fixed salt, then one block of expansion with the context as info.
KeptKey derive_key(const Secret& secret, std::string_view purpose, std::string_view context) {
  const std::byte block{1};
  KeptKey extracted, key;
  hmac_into(*extracted, as_bytes(purpose), secret.bytes());
  hmac_into(*key, *extracted, as_bytes(context), {&block, 1});
  return key;
}

std::shared_ptr<const Authenticator> make_authenticator(const Secret& secret, std::string_view context) {
  return std::make_shared<DerivedAuthenticator>(derive_key(secret, "rondo authenticator 1", context));
}

}  // namespace rondo::rendezvous
