// SPDX-License-Identifier: Apache-2.0
#include "tests/process/nodes_job.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <stdexcept>

namespace rondo::test {

std::string free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error("cannot find a free port");
  return std::to_string(ntohs(address.sin_port));
}

}  // namespace rondo::test
