// Memory of the device and pinned memory of the host, from caching allocators that hand freed blocks out again.
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

// Who holds a block from an allocation to its release.
struct Tenancy {
  uint32_t number = 0;
  size_t size = 0;
  uint32_t site = 0;
  std::string name;
  int tag = 0;  // which was set as it was handed out; 0 is none
};

enum class BlockState { kUsed, kWaiting, kFree };

// A piece of memory that is handed out as a whole. Its bytes stay where they are for as long as the process lives.
struct Block {
  uintptr_t base = 0;
  size_t capacity = 0;
  bool pinned = false;
  int stream = 0;
  int pool = 0;  // whose turn it is once it is free: a stream's, or minus the number of a pool of graphs
  BlockState state = BlockState::kFree;
  std::deque<Tenancy> tenancies;                   // newest last; the last few, and those of accesses still known
  std::vector<Access> accesses;                    // what a later use must be ordered after
  std::vector<Access> writes;                      // oldest first: those of its owner not written over since
  std::vector<int> streams;                        // beside its own, which use it and are known to
  std::vector<std::pair<int, uint64_t>> recorded;  // once released: what must be over before it is handed out again
  std::vector<Access> flights;                     // pinned: uses that the host has not synchronised with
  std::vector<uint8_t> protection;                 // pinned: of each page

  const Tenancy& tenancy(uint32_t number) const;
  // Keep a write as the last of its bytes.
  void note_write(Access access);
  // Drop old owners, except those whose accesses may still be reported.
  void forget_owners();
};

struct MemoryCounts {
  uint64_t allocations = 0, reused = 0;
  size_t used = 0, used_max = 0, reserved = 0;
};

class Memory {
 public:
  // Hand out a block to a stream (device) or to the host (pinned); null when the device is full.
  // As CUDA's allocators do: a stream gets back at once what it had itself; what other streams were said to use (by
  // `record`) waits until the host, or the stream that asks, is ordered after that.
  // With a pool of graphs, that one alone gets it back.
  Block* take(size_t size, bool pinned, int stream, int graph_pool, const Clock& host, const Clock& asking,
              uint32_t site);
  void give_back(Block* block);
  // Count the graphs of a pool: while there is one, their memory stays theirs.
  void keep_pool(int graph_pool) { graphs_[graph_pool]++; }
  void drop_pool(int graph_pool) { graphs_[graph_pool]--; }
  // Tag what is handed out of the device from here on, and return the tag before; a new one is nobody's yet.
  int set_tag(int tag) { return std::exchange(tag_, tag); }
  int new_tag() { return ++tags_; }
  // The blocks in use that bear a tag.
  std::vector<const Block*> tagged(int tag) const;
  // The block that begins at an address, or that an address lies in; null if there is none in use or free.
  Block* at(uintptr_t base) const;
  Block* around(uintptr_t address) const;
  // Open or close all memory of the device.
  void protect_device(bool open) const;
  // Forget who used what; what is free counts as never used. Nothing may be pending.
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
  void sweep(const Clock& host, const Clock& asking, int stream);

  std::map<std::pair<bool, int>, Pool> pools_;
  std::map<int, int> graphs_;
  std::map<std::pair<bool, size_t>, std::vector<Block*>> unused_;
  std::vector<Block*> waiting_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unordered_map<uintptr_t, Block*> by_base_;
  std::map<uintptr_t, Block*> by_address_;
  uintptr_t segment_ = 0, segment_end_ = 0;
  std::vector<std::pair<uintptr_t, size_t>> segments_;  // all of the device's
  int tag_ = 0, tags_ = 0;
  MemoryCounts counts_;
};

}  // namespace simulated
