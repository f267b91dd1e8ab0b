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

void* StoreBuffer::let_out(Random& random) {
  std::size_t chosen = random.below(stores_.size());
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    if (stores_[i].word == stores_[chosen].word && stores_[i].number < stores_[chosen].number) chosen = i;
  }
  const PendingStore store = take(chosen);
  if (store.bytes == 4) {
    __atomic_store_n(static_cast<std::uint32_t*>(store.word), static_cast<std::uint32_t>(store.value),
                     __ATOMIC_RELAXED);
  } else {
    __atomic_store_n(static_cast<std::uint64_t*>(store.word), store.value, __ATOMIC_RELAXED);
  }
  return store.word;
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

void Machine::let_out_all(StoreBuffer& stores) {
  while (!stores.empty()) let_out_one(stores);
}
void Machine::let_out_one(StoreBuffer& stores) { wake(stores.let_out(random)); }

void Machine::let_out_by_chance(Lane& lane) {
  constexpr std::uint64_t kOneIn = 8;
  Block& any = *blocks_[random.below(blocks_.size())];
  for (StoreBuffer* stores : {&lane.stores, &lane.home->stores, &any.stores}) {
    if (!stores->empty() && random.one_in(kOneIn)) let_out_one(*stores);
  }
}

// One of those that have waited since their lane or block last ran; false: there is none.
bool Machine::let_out_any() {
  const std::size_t first = random.below(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = *blocks_[(first + i) % blocks_.size()];
    StoreBuffer* stores = &block.stores;
    for (unsigned t = 0; t < block.lane_count && stores->empty(); ++t) stores = &block.lanes[t].stores;
    if (stores->empty()) continue;
    let_out_one(*stores);
    return true;
  }
  return false;
}

// The block has met: what its lanes have stored is the block's, and a release by any of them lets it out.
void Machine::hand_to_block(Lane& lane) {
  StoreBuffer& block = lane.home->stores;
  while (!lane.stores.empty()) {
    const PendingStore store = lane.stores.take_oldest();
    block.put(store.word, store.bytes, store.value);
    if (block.size() > StoreBuffer::kBlockLimit) let_out_one(block);
  }
}

void weak_store(void* word, std::size_t bytes, std::uint64_t value) {
  Machine& machine = running_machine();
  StoreBuffer& stores = running_lane().stores;
  stores.put(word, bytes, value);
  if (stores.size() > StoreBuffer::kLaneLimit) machine.let_out_one(stores);
}

bool weak_forward(const void* word, std::size_t bytes, std::uint64_t* value) {
  const Lane& lane = running_lane();
  return lane.stores.find(word, bytes, value) || lane.home->stores.find(word, bytes, value);
}

void weak_release() {
  Machine& machine = running_machine();
  Lane& lane = running_lane();
  machine.let_out_all(lane.home->stores);
  machine.let_out_all(lane.stores);
}

}  // namespace rondo::simt
