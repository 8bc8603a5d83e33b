// Race detector: accesses to the same bytes, at least one a write, without an order by stream, event or wait.
#pragma once
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory.h"

namespace simulated {

// One access of a race: actor, kind, label, source site, and the owner of the memory at that time.
struct Side {
  int actor = kHost;
  bool write = false;
  Label label;
  uint32_t site = 0;
  Tenancy owner;
};

struct Race {
  Side first, second;
  uint64_t low = 0, high = 0;  // range of the common bytes, relative to the start of the buffer
  uint64_t count = 0;
};

// Return the last writes of a span's bytes by the current owner of the block, newest first; empty if not recorded.
std::vector<Side> last_writers(const Block& block, const Span& span);

class Races {
 public:
  // Compare a use with all earlier ones that are not ordered before it, and record it.
  void touch(const Use& use, const Clock& clock, const Clock& host, const Access& access);
  // Record races of an access with earlier ones; equal pairs of lines and ops are recorded once, with a count.
  void note(const Block& block, const std::vector<const Access*>& earlier, const Access& access);
  // Report no race of a read by this task: it copies to memory that was freed before the copy arrived, so that nobody
  // receives what it read.
  void discard(int actor, uint64_t time) { discarded_.insert({actor, time}); }
  const std::vector<Race>& found() const { return found_; }
  void clear();

 private:
  std::vector<Race> found_;
  std::unordered_map<std::string, size_t> known_;
  std::vector<const Access*> unordered_;
  std::set<std::pair<int, uint64_t>> discarded_;
};

}  // namespace simulated
