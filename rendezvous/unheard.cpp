// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/unheard.hpp"

#include <algorithm>
#include <utility>

namespace rondo::rendezvous {
namespace {

constexpr std::size_t kMostGatherings = 1024, kMostParticipants = std::size_t{1} << 22;

}  // namespace

void Unheard::note(const std::string& gathering, const Error& error, std::vector<bool> heard) {
  forget(gathering);
  if (std::find(heard.begin(), heard.end(), false) == heard.end()) return;
  participants_ += heard.size();
  failures_.emplace(gathering, Failure{error, std::move(heard)});
  oldest_.push_back(gathering);
  while (oldest_.size() > kMostGatherings || participants_ > kMostParticipants) forget(std::string(oldest_.front()));
}

std::optional<Error> Unheard::take(const std::string& gathering, std::uint32_t index, std::uint32_t participants) {
  const auto found = failures_.find(gathering);
  if (found == failures_.end()) return std::nullopt;
  auto& [error, heard] = found->second;
  if (heard.size() != participants || index >= participants || heard[index]) return std::nullopt;
  heard[index] = true;
  const Error told = error;
  if (std::find(heard.begin(), heard.end(), false) == heard.end()) forget(gathering);
  return told;
}

void Unheard::forget(const std::string& gathering) {
  const auto found = failures_.find(gathering);
  if (found == failures_.end()) return;
  participants_ -= found->second.heard.size();
  failures_.erase(found);
  std::erase(oldest_, gathering);
}

void Unheard::clear() {
  failures_.clear();
  oldest_.clear();
  participants_ = 0;
}

}  // namespace rondo::rendezvous
