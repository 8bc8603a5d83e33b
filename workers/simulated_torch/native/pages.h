// Page protection of pinned memory: detects host accesses that are not ordered after a task in flight.
#pragma once
#include "memory.h"

namespace simulated {

// The pages of a task in flight are inaccessible if it writes them and read-only if it reads them, until the host has
// synchronised with the task. A page fault is compared with the bytes in flight: if they overlap, it is a race, and the
// pages stay accessible until the next call of the device; otherwise only the one instruction is let through.
class Pages {
 public:
  bool on = false;

  void add_in_flight(const Use& use, const Access& access);
  // Set the protection of a span's pages as the tasks in flight require.
  void restore_protection(Block& block, const Span& span);
  void open(Block& block, const Span& span);
  // Remove the tasks that the hosts are ordered after.
  void retire();
  // Protect the pages again that were left accessible after a race. Called first in every call of the device.
  void protect_again() {
    if (!left_open_.empty()) protect_left_open();
  }
  // Make all pages accessible and remove all tasks.
  void clear();
  void leave_open(Block& block, const Span& span);

 private:
  void protect_left_open();

  std::vector<Block*> in_flight_;
  std::vector<std::pair<Block*, Span>> left_open_;
};

// Install the handlers of SIGSEGV and SIGTRAP, also if others have replaced them.
void take_signals();

}  // namespace simulated
