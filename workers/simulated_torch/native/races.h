// Race detector: accesses of the same bytes, at least one a write, that no stream order, event or wait orders.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "memory.h"

namespace simulated {

// One of two accesses that race: who, what, where from, and whose memory it was at that time.
struct Side {
  int actor = kHost;
  bool write = false;
  Label label;
  uint32_t site = 0;
  Tenancy owner;
};

struct Race {
  Side first, second;
  uint64_t low = 0, high = 0;  // the bytes in common lie in here, counted from where the buffer begins
  uint64_t count = 0;
};

// The last writes of any of the bytes of a span by the owner of its block, newest first; empty if they are not kept.
std::vector<Side> last_writers(const Block& block, const Span& span);

class Races {
 public:
  // Compare a use with all earlier ones that are not ordered before it, and record it.
  void touch(const Use& use, const Clock& clock, const Clock& host, const Access& access);
  // Note races of one access with earlier ones; the same two lines and ops are noted once, and counted.
  void note(const Block& block, const std::vector<const Access*>& earlier, const Access& access);
  const std::vector<Race>& found() const { return found_; }
  void clear();

 private:
  std::vector<Race> found_;
  std::unordered_map<std::string, size_t> known_;
  std::vector<const Access*> unordered_;
};

}  // namespace simulated
