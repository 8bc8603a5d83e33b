// Types shared by all parts of the device: clocks, task labels, memory spans and their uses.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace simulated {

// A host is actor 0, stream i is actor i + 1. Streams of rank 0 come first, then a range of streams for each rank.
constexpr int kStreamsOfFirst = 63, kStreamsOfRank = 16, kRanksMax = 4;
constexpr int kStreamsMax = kStreamsOfFirst + kRanksMax * kStreamsOfRank;
constexpr int kActorsMax = kStreamsMax + 1;
constexpr int kHost = 0;

struct Gate;

// Vector clock: for each actor, the time up to which its work is ordered before the clock's owner.
//
// The owner is also ordered after everything that arrives at `gates`, some of it after the clock was read.
struct Clock {
  std::array<uint64_t, kActorsMax> at{};
  std::vector<std::shared_ptr<Gate>> gates;

  void join(const Clock& other) {
    join_times(other);
    if (!gates.empty() || !other.gates.empty()) join_gates(other);
  }
  bool knows(int actor, uint64_t time) const {
    return at[actor] >= time || (!gates.empty() && is_known_by_gate(actor, time));
  }

 private:
  void join_times(const Clock& other) {
    for (int actor = 0; actor < kActorsMax; actor++) at[actor] = std::max(at[actor], other.at[actor]);
  }
  void join_gates(const Clock& other);
  void add_gates(const Clock& other);
  bool is_known_by_gate(int actor, uint64_t time) const;
};

// A point that `num_expected` ranks must reach before any of them can pass it: the clocks of those that have arrived,
// and once all have arrived, one clock that joins them.
struct Gate {
  size_t num_expected = 0;
  std::vector<Clock> arrived;
  bool is_complete = false;

  void add(const Clock& clock);
};

// Identity of a task, independent of timing: the `nth` launch of an op in a step of the program.
struct Label {
  uint32_t op = 0;
  int64_t step = 0;
  uint32_t nth = 0;
};

// Bytes of a strided view within [low, high): runs of `run` contiguous bytes, at all combinations of `outer`.
struct Strides {
  uint64_t run = 0;
  std::vector<std::pair<int64_t, int64_t>> outer;  // (count, stride in bytes), largest stride first
  bool operator==(const Strides& other) const { return run == other.run && outer == other.outer; }
};

struct Span {
  uintptr_t low = 0, high = 0;
  std::shared_ptr<const Strides> strides;  // null: all bytes

  bool empty() const { return low == high; }
};

// Return the bytes of a tensor at `base` with these sizes and strides (in elements).
Span span_of(uintptr_t base, const int64_t* sizes, const int64_t* strides, int64_t dims, int64_t element_size);
// Return whether two spans have a byte in common.
bool overlap(const Span& a, const Span& b);
// Return true if every byte of `inner` is in `outer`; false may also mean that this is unknown.
bool covers(const Span& outer, const Span& inner);
// Return a hash of the current bytes of a span.
uint64_t digest_of(const Span& span);

struct Block;

struct Use {
  Block* block = nullptr;
  Span span;
  bool read = false, write = false;
};
using Uses = std::vector<Use>;

// An access: actor, time and source site; `tenancy` is the owner of the block at that time.
struct Access {
  Span span;
  bool write = false;
  int actor = kHost;
  uint64_t time = 0;
  Label label;
  uint32_t site = 0;
  uint32_t tenancy = 0;
};

}  // namespace simulated
