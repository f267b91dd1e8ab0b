// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/weak_stores.hpp"

#include "kernels/simt/machine.hpp"

namespace rondo::simt {

PendingStore StoreBuffer::take(std::size_t index) {
  const PendingStore store = stores_[index];
  stores_[index] = stores_.back();
  stores_.pop_back();
  return store;
}

PendingStore StoreBuffer::take_any(Random& random) {
  PendingStore store{};
  take_oldest(stores_[random.below(stores_.size())].word, &store);
  return store;
}

bool StoreBuffer::take_oldest(const void* word, PendingStore* store) {
  std::size_t oldest = stores_.size();
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const bool older = oldest == stores_.size() || stores_[i].number < stores_[oldest].number;
    if (stores_[i].word == word && older) oldest = i;
  }
  if (oldest == stores_.size()) return false;
  *store = take(oldest);
  return true;
}

PendingStore StoreBuffer::take_oldest() {
  std::size_t oldest = 0;
  for (std::size_t i = 1; i < stores_.size(); ++i) {
    if (stores_[i].number < stores_[oldest].number) oldest = i;
  }
  return take(oldest);
}

bool StoreBuffer::find(const void* word, std::size_t bytes, std::uint64_t* value) const {
  const PendingStore* newest = nullptr;
  for (const PendingStore& store : stores_) {
    if (store.word != word || store.bytes != bytes) continue;
    if (newest == nullptr || store.number > newest->number) newest = &store;
  }
  if (newest != nullptr) *value = newest->value;
  return newest != nullptr;
}

void Machine::make_visible(const PendingStore& store) {
  if (store.bytes == 4) {
    __atomic_store_n(static_cast<std::uint32_t*>(store.word), static_cast<std::uint32_t>(store.value),
                     __ATOMIC_RELAXED);
  } else {
    __atomic_store_n(static_cast<std::uint64_t*>(store.word), store.value, __ATOMIC_RELAXED);
  }
  wake(store.word);
}

void Machine::let_out_one(Block& block) { make_visible(block.stores.take_any(random)); }

// What the block stored to the same word came before: lanes have met since.
void Machine::let_out_one(Lane& lane) {
  const PendingStore store = lane.stores.take_any(random);
  PendingStore before{};
  while (lane.home->stores.take_oldest(store.word, &before)) make_visible(before);
  make_visible(store);
}

void Machine::let_out_all(Block& block) {
  while (!block.stores.empty()) let_out_one(block);
}

void Machine::let_out_by_chance(Lane& lane) {
  constexpr std::uint64_t kOneIn = 8;
  const auto chance = [&](auto& owner) {
    if (!owner.stores.empty() && random.one_in(kOneIn)) let_out_one(owner);
  };
  chance(lane);
  chance(*lane.home);
  chance(*blocks_[random.below(blocks_.size())]);
}

// One of those that have waited since their lane or block last ran; false: there is none.
bool Machine::let_out_any() {
  const std::size_t first = random.below(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = *blocks_[(first + i) % blocks_.size()];
    if (!block.stores.empty()) {
      let_out_one(block);
      return true;
    }
    for (unsigned t = 0; t < block.lane_count; ++t) {
      if (block.lanes[t].stores.empty()) continue;
      let_out_one(block.lanes[t]);
      return true;
    }
  }
  return false;
}

// The block has met: what its lanes have stored is the block's, and a release by any of them lets it out.
void Machine::hand_to_block(Lane& lane) {
  Block& block = *lane.home;
  while (!lane.stores.empty()) {
    const PendingStore store = lane.stores.take_oldest();
    block.stores.put(store.word, store.bytes, store.value);
    if (block.stores.size() > StoreBuffer::kBlockLimit) let_out_one(block);
  }
}

void weak_store(void* word, std::size_t bytes, std::uint64_t value) {
  Machine& machine = running_machine();
  Lane& lane = running_lane();
  lane.stores.put(word, bytes, value);
  if (lane.stores.size() > StoreBuffer::kLaneLimit) machine.let_out_one(lane);
}

bool weak_forward(const void* word, std::size_t bytes, std::uint64_t* value) {
  const Lane& lane = running_lane();
  return lane.stores.find(word, bytes, value) || lane.home->stores.find(word, bytes, value);
}

void weak_release() {
  Machine& machine = running_machine();
  Lane& lane = running_lane();
  machine.let_out_all(*lane.home);
  while (!lane.stores.empty()) machine.let_out_one(lane);
}

}  // namespace rondo::simt
