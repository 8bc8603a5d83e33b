// Device memory and pinned host memory, from caching allocators that reuse freed blocks.
#pragma once
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "types.h"

namespace simulated {

// The owner of a block, from its allocation to its release.
struct Tenancy {
  uint32_t number = 0;
  size_t size = 0;
  uint32_t site = 0;
  std::string name;
  int tag = 0;  // the tag set at its allocation; 0 means no tag
};

enum class BlockState { kUsed, kWaiting, kFree };

// A unit of allocation. Its bytes stay mapped at the same address as long as the process lives.
struct Block {
  uintptr_t base = 0;
  size_t capacity = 0;
  bool pinned = false;
  int stream = 0;
  int pool = 0;  // which may reuse it when free: a stream (pinned: a host), or minus the number of a graph pool
  int owner = 0;  // the host that allocated it
  BlockState state = BlockState::kFree;
  std::deque<Tenancy> tenancies;                   // newest last; the last few, and all that recorded accesses refer to
  std::vector<Access> accesses;                    // a later use must be ordered after these
  std::vector<Access> writes;                      // oldest first: writes of its owner that are not overwritten
  std::vector<int> streams;                        // further streams that use it, from record_stream
  std::vector<std::pair<int, uint64_t>> recorded;  // after its release: work that must finish before it is reused
  std::unique_ptr<Clock> freed;                    // clock of the host that freed it, if there are several hosts
  std::vector<Access> flights;                     // pinned: uses that the host has not synchronised with
  std::vector<uint8_t> protection;                 // pinned: for each page

  const Tenancy& tenancy(uint32_t number) const;
  // Record a write as the last one of its bytes.
  void note_write(Access access);
  // Drop old owners, unless one of their accesses may still be reported.
  void forget_owners();
};

struct MemoryCounts {
  uint64_t allocations = 0, reused = 0;
  size_t used = 0, used_max = 0, reserved = 0;
};

class Memory {
 public:
  // Allocate a block for a stream (device) or for the host (pinned); return null if the device is full.
  // Like CUDA's allocators: a stream reuses its own blocks immediately; a block that other streams use (from
  // `record_use`) is reused only when the host, or the allocating stream, is ordered after their work.
  // A block of a graph pool is reused only by that pool.
  Block* take(size_t size, bool pinned, int stream, int graph_pool, int owner, const Clock& host, const Clock& asking,
              uint32_t site);
  void give_back(Block* block);
  // Count the graphs of a pool: while it has one, its memory is not reused elsewhere.
  void keep_pool(int graph_pool) { graphs_[graph_pool]++; }
  void drop_pool(int graph_pool) { graphs_[graph_pool]--; }
  // Tag device memory allocated from now on, and return the previous tag; a new tag is unused.
  int set_tag(int tag) { return std::exchange(tag_, tag); }
  int new_tag() { return ++tags_; }
  // Return the allocated blocks with a tag.
  std::vector<const Block*> tagged(int tag) const;
  // Return the block that begins at, or contains, an address; null if no block does.
  Block* at(uintptr_t base) const;
  Block* around(uintptr_t address) const;
  // Make all device memory accessible to the host, or inaccessible.
  void protect_device(bool open) const;
  // Drop all recorded uses; free blocks count as never used. No task may be pending.
  void renew();
  const MemoryCounts& counts() const { return counts_; }
  void reset_peak() { counts_.used_max = counts_.used; }
  static constexpr size_t limit = size_t{16} << 30;

 private:
  using Pool = std::map<size_t, std::vector<Block*>>;

  Block* reused(Pool& pool, size_t capacity);
  Block* fresh(size_t capacity, bool pinned);
  uintptr_t carve(size_t capacity);
  uintptr_t mapped_for_device(size_t size);
  bool is_of_graphs(int pool) const;
  void free(Block* block);
  void sweep(int owner, const Clock& host, const Clock& asking, int stream);

  std::map<std::pair<bool, int>, Pool> pools_;
  std::map<int, int> graphs_;
  std::map<std::pair<bool, size_t>, std::vector<Block*>> unused_;
  std::vector<Block*> waiting_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unordered_map<uintptr_t, Block*> by_base_;
  std::map<uintptr_t, Block*> by_address_;
  uintptr_t segment_ = 0, segment_end_ = 0;
  std::vector<std::pair<uintptr_t, size_t>> segments_;  // all device memory
  int tag_ = 0, tags_ = 0;
  MemoryCounts counts_;
};

}  // namespace simulated
