// Page protection of pinned memory: finds accesses of the host that are not ordered after a task in flight.
#pragma once
#include "memory.h"

namespace simulated {

// A task in flight that writes makes its pages inaccessible, one that reads makes them read-only, until the host has
// synchronised with it. A fault is held against the bytes in flight: if they meet it is a race, and the pages stay open
// until the next call of the device; else the one instruction is let through.
class Pages {
 public:
  bool on = false;

  void fly(const Use& use, const Access& access);
  // Protect the pages of a span as what is in flight demands.
  void settle(Block& block, const Span& span);
  void open(Block& block, const Span& span);
  // Forget what the host is ordered after.
  void retire(const Clock& host);
  // Close what was left open after a race. Comes first in every call of the device.
  void reclose() {
    if (!left_open_.empty()) close_again();
  }
  // Open everything and forget it.
  void clear();
  void leave_open(Block& block, const Span& span);

 private:
  void close_again();

  std::vector<Block*> flying_;
  std::vector<std::pair<Block*, Span>> left_open_;
};

// Take over SIGSEGV and SIGTRAP; again, if other handlers were installed since.
void take_signals();

}  // namespace simulated
