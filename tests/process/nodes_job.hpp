// SPDX-License-Identifier: Apache-2.0
// Several launchers, one for each node, on this machine's loopback.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tests/process/running.hpp"
#include "tests/process/secret_file.hpp"

namespace rondo::test {

std::string free_port();

class NodesJob {
 public:
  explicit NodesJob(std::string nodes, std::string address = "127.0.0.1")
      : nodes_(std::move(nodes)), address_(std::move(address)), port_(free_port()) {}
  std::unique_ptr<Running> start(std::vector<std::string> flags, const std::vector<std::string>& command) const {
    return start_at(*this, std::move(flags), command);
  }
  // Where that one meets, with its secret.
  std::unique_ptr<Running> start_at(const NodesJob& other, std::vector<std::string> flags,
                                    const std::vector<std::string>& command) const {
    std::vector<std::string> all = words_at(other, std::move(flags));
    all.emplace_back("--");
    all.insert(all.end(), command.begin(), command.end());
    return std::make_unique<Running>(all, Running::How{.limit = std::chrono::seconds(60)});
  }
  std::vector<std::string> words(std::vector<std::string> flags) const { return words_at(*this, std::move(flags)); }

  const std::string& port() const { return port_; }

 private:
  std::vector<std::string> words_at(const NodesJob& other, std::vector<std::string> flags) const {
    const std::vector<std::string> meeting{"--nnodes",      nodes_,      "--master-addr", other.address_,
                                           "--master-port", other.port_, "--secret-file", other.secret_.path};
    flags.insert(flags.begin(), meeting.begin(), meeting.end());
    return rondorun(flags);
  }

  SecretFile secret_;
  std::string nodes_, address_, port_;
};

}  // namespace rondo::test
