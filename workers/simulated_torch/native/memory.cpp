// Device memory and pinned host memory, from caching allocators that reuse freed blocks.
#include "memory.h"

#include <cstring>
#include <sys/mman.h>

namespace simulated {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGrain = 512;             // small device blocks have multiples of this size
constexpr size_t kSmallMax = 1 << 20;      // larger blocks get their own mapping, in multiples of
constexpr size_t kLargeGrain = 2 << 20;    // this, which is also the size of a segment for small blocks
constexpr size_t kTenanciesMax = 8;
constexpr size_t kWritesMax = 64;

size_t rounded(size_t size, size_t grain) { return (size + grain - 1) / grain * grain; }

size_t capacity_of(size_t size, bool pinned) {
  if (!pinned) return rounded(size, size <= kSmallMax ? kGrain : kLargeGrain);
  size_t capacity = kPage;
  while (capacity < size) capacity *= 2;
  return capacity;
}

uintptr_t mapped(size_t size) {
  void* found = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(found);
}

}  // namespace

const Tenancy& Block::tenancy(uint32_t number) const {
  for (const auto& each : tenancies)
    if (each.number >= number) return each;
  return tenancies.back();
}

void Block::note_write(Access access) {
  auto is_over = [&](const Access& write) { return write.tenancy != access.tenancy || covers(access.span, write.span); };
  writes.erase(std::remove_if(writes.begin(), writes.end(), is_over), writes.end());
  if (writes.size() == kWritesMax) writes.erase(writes.begin());
  writes.push_back(std::move(access));
}

void Block::forget_owners() {
  auto is_needed = [&](const Tenancy& owner) {
    auto is_its = [&](const Access& access) { return access.tenancy == owner.number; };
    return std::any_of(accesses.begin(), accesses.end(), is_its) || std::any_of(flights.begin(), flights.end(), is_its);
  };
  while (tenancies.size() > kTenanciesMax) {
    auto gone = std::find_if_not(tenancies.begin(), tenancies.end() - 1, is_needed);
    if (gone == tenancies.end() - 1) return;
    tenancies.erase(gone);
  }
}

Block* Memory::take(size_t size, bool pinned, int stream, int graph_pool, int owner, const Clock& host,
                    const Clock& asking, uint32_t site) {
  if (!waiting_.empty()) sweep(owner, host, asking, stream);
  size_t capacity = capacity_of(size, pinned);
  int pool = pinned ? owner : graph_pool > 0 ? -graph_pool : stream;
  Block* block = reused(pools_[{pinned, pool}], capacity);
  counts_.allocations++;
  if (block != nullptr) counts_.reused++;
  else block = fresh(capacity, pinned);
  if (block == nullptr) return nullptr;
  block->state = BlockState::kUsed;
  block->stream = stream;
  block->pool = pool;
  block->owner = owner;
  block->streams.clear();
  block->recorded.clear();
  uint32_t number = block->tenancies.empty() ? 1 : block->tenancies.back().number + 1;
  block->tenancies.push_back({number, size, site, "", pinned ? 0 : tag_});
  block->forget_owners();
  if (!pinned) {
    counts_.used += block->capacity;
    counts_.used_max = std::max(counts_.used_max, counts_.used);
  }
  return block;
}

Block* Memory::reused(Pool& pool, size_t capacity) {
  auto found = pool.lower_bound(capacity);
  while (found != pool.end() && found->second.empty()) found = pool.erase(found);
  if (found == pool.end() || found->first > 2 * capacity) return nullptr;
  Block* block = found->second.back();
  found->second.pop_back();
  return block;
}

Block* Memory::fresh(size_t capacity, bool pinned) {
  auto& unused = unused_[{pinned, capacity}];
  if (!unused.empty()) {
    Block* block = unused.back();
    unused.pop_back();
    std::memset(reinterpret_cast<void*>(block->base), 0, block->capacity);
    return block;
  }
  if (!pinned && counts_.reserved + capacity > limit) return nullptr;
  uintptr_t base = pinned ? mapped(capacity) : capacity > kSmallMax ? mapped_for_device(capacity) : carve(capacity);
  if (base == 0) return nullptr;
  if (!pinned) counts_.reserved += capacity;
  blocks_.push_back(std::make_unique<Block>());
  Block* block = blocks_.back().get();
  block->base = base;
  block->capacity = capacity;
  block->pinned = pinned;
  if (pinned) block->protection.assign(capacity / kPage, PROT_READ | PROT_WRITE);
  by_base_[base] = block;
  by_address_[base] = block;
  return block;
}

uintptr_t Memory::mapped_for_device(size_t size) {
  uintptr_t base = mapped(size);
  if (base != 0) segments_.emplace_back(base, size);
  return base;
}

void Memory::protect_device(bool open) const {
  for (auto [base, size] : segments_)
    mprotect(reinterpret_cast<void*>(base), size, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

uintptr_t Memory::carve(size_t capacity) {
  if (segment_end_ - segment_ < capacity) {
    segment_ = mapped_for_device(kLargeGrain);
    if (segment_ == 0) return segment_end_ = 0;
    segment_end_ = segment_ + kLargeGrain;
  }
  uintptr_t base = segment_;
  segment_ += capacity;
  return base;
}

void Memory::give_back(Block* block) {
  if (!block->pinned) counts_.used -= block->capacity;
  if (!block->recorded.empty()) {
    block->state = BlockState::kWaiting;
    waiting_.push_back(block);
    return;
  }
  free(block);
}

void Memory::free(Block* block) {
  block->state = BlockState::kFree;
  pools_[{block->pinned, block->pool}][block->capacity].push_back(block);
}

bool Memory::is_of_graphs(int pool) const {
  auto found = graphs_.find(-pool);
  return pool < 0 && found != graphs_.end() && found->second > 0;
}

void Memory::sweep(int owner, const Clock& host, const Clock& asking, int stream) {
  auto over = [&](const Block* block, const Clock& clock) {
    for (auto [actor, time] : block->recorded)
      if (!clock.knows(actor, time)) return false;
    return true;
  };
  std::vector<Block*> left;
  for (Block* block : waiting_) {
    bool mine = !block->pinned && block->stream == stream;
    if (block->owner != owner || (!over(block, host) && !(mine && over(block, asking)))) {
      left.push_back(block);
      continue;
    }
    free(block);
  }
  waiting_ = std::move(left);
}

std::vector<const Block*> Memory::tagged(int tag) const {
  std::vector<const Block*> found;
  for (const auto& block : blocks_)
    if (block->state == BlockState::kUsed && !block->tenancies.empty() && block->tenancies.back().tag == tag)
      found.push_back(block.get());
  return found;
}

Block* Memory::at(uintptr_t base) const {
  auto found = by_base_.find(base);
  return found == by_base_.end() ? nullptr : found->second;
}

Block* Memory::around(uintptr_t address) const {
  auto found = by_address_.upper_bound(address);
  if (found == by_address_.begin()) return nullptr;
  Block* block = (--found)->second;
  return address < block->base + block->capacity ? block : nullptr;
}

void Memory::renew() {
  for (Block* block : waiting_) free(block);
  waiting_.clear();
  for (auto each = pools_.begin(); each != pools_.end();) {
    auto& [kind, pool] = *each;
    if (is_of_graphs(kind.second)) {
      ++each;
      continue;
    }
    for (auto& [capacity, free] : pool)
      for (Block* block : free) unused_[{kind.first, capacity}].push_back(block);
    each = pools_.erase(each);
  }
  for (auto& block : blocks_) {
    block->accesses.clear();
    block->writes.clear();
    block->flights.clear();
    block->recorded.clear();
    block->freed.reset();
    if (block->state == BlockState::kFree && !is_of_graphs(block->pool)) block->tenancies.clear();
  }
}

}  // namespace simulated
