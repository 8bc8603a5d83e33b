// Page protection of pinned memory: detects host accesses that are not ordered after a task in flight.
#include "pages.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "machine.h"
#include "sites.h"

namespace simulated {
namespace {

constexpr uintptr_t kPage = 4096;
constexpr int kOpen = PROT_READ | PROT_WRITE;
constexpr greg_t kTrapFlag = 0x100;
constexpr int kSteppedMax = 4;

struct sigaction segv_before {}, trap_before {};

// Pages that the current instruction may access once; an instruction accesses only a few pages.
struct Stepped {
  Block* block;
  uintptr_t address;
};
thread_local Stepped stepped[kSteppedMax];
thread_local int num_stepped = 0;

void set_protection(Block& block, size_t first, size_t last, int wanted) {
  mprotect(reinterpret_cast<void*>(block.base + first * kPage), (last - first) * kPage, wanted);
  for (size_t page = first; page < last; page++) block.protection[page] = wanted;
}

int demanded(const Block& block, size_t page) {
  uintptr_t low = block.base + page * kPage, high = low + kPage;
  int wanted = kOpen;
  for (const auto& flight : block.flights)
    if (flight.span.low < high && low < flight.span.high) wanted &= flight.write ? PROT_NONE : PROT_READ;
  return wanted;
}

// Set each page of a span to the protection that `wanted` returns, with few system calls.
template <class Wanted>
void protect(Block& block, const Span& span, const Wanted& wanted) {
  size_t first = (span.low - block.base) / kPage, last = (span.high - block.base + kPage - 1) / kPage;
  for (size_t page = first; page < last;) {
    int want = wanted(page);
    size_t end = page + 1;
    if (want == block.protection[page]) {
      page = end;
      continue;
    }
    while (end < last && wanted(end) == want) end++;
    set_protection(block, page, end, want);
    page = end;
  }
}

void pass_on(const struct sigaction& before, int signal, siginfo_t* info, void* context) {
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    // Without our handler the instruction faults again, and the process ends as usual.
    sigaction(signal, &before, nullptr);
  }
}

void on_segv(int signal, siginfo_t* info, void* context) {
  auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Locked lock(machine());
  Block* block = machine().memory.around(address);
  bool is_write = registers[REG_ERR] & 2;
  if (block != nullptr && !block->pinned && machine().settings.closed) return machine().record_bypass(*block, is_write);
  bool ours = block != nullptr && block->pinned && block->protection[(address - block->base) / kPage] != kOpen;
  if (!ours) return pass_on(segv_before, signal, info, context);
  Span byte{address, address + 1, nullptr};
  if (machine().check_host_access(*block, byte, is_write) || num_stepped == kSteppedMax) {
    machine().pages.leave_open(*block, byte);
    return;
  }
  machine().pages.open(*block, byte);
  stepped[num_stepped++] = {block, address};
  registers[REG_EFL] |= kTrapFlag;
}

void on_trap(int signal, siginfo_t* info, void* context) {
  if (num_stepped == 0) return pass_on(trap_before, signal, info, context);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  Locked lock(machine());
  while (num_stepped > 0) {
    const auto& last = stepped[--num_stepped];
    machine().pages.restore_protection(*last.block, {last.address, last.address + 1, nullptr});
  }
}

void take(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction& before) {
  struct sigaction ours {}, old {};
  ours.sa_sigaction = handler;
  // SA_ONSTACK uses an alternate stack if one is set: a handler cannot run on a stack that has overflowed.
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(signal, &ours, &old);
  if (!(old.sa_flags & SA_SIGINFO) || old.sa_sigaction != handler) before = old;
}

}  // namespace

void take_signals() {
  take(SIGSEGV, &on_segv, segv_before);
  take(SIGTRAP, &on_trap, trap_before);
}

void Pages::add_in_flight(const Use& use, const Access& access) {
  auto& flights = use.block->flights;
  if (flights.empty()) in_flight_.push_back(use.block);
  // Work that is ordered after this access is also ordered after its stream's earlier accesses.
  auto is_over = [&](const Access& flight) {
    return flight.actor == access.actor && (access.write || !flight.write) && covers(access.span, flight.span);
  };
  flights.erase(std::remove_if(flights.begin(), flights.end(), is_over), flights.end());
  flights.push_back(access);
}

void Pages::restore_protection(Block& block, const Span& span) {
  protect(block, span, [&](size_t page) { return demanded(block, page); });
}

void Pages::open(Block& block, const Span& span) {
  protect(block, span, [](size_t) { return kOpen; });
}

void Pages::retire() {
  size_t kept = 0;
  for (Block* block : in_flight_) {
    auto& flights = block->flights;
    Span landed{UINTPTR_MAX, 0, nullptr};
    size_t left = 0;
    for (auto& flight : flights) {
      if (machine().all_hosts_know(flight.actor, flight.time)) {
        landed.low = std::min(landed.low, flight.span.low);
        landed.high = std::max(landed.high, flight.span.high);
      } else {
        if (&flights[left] != &flight) flights[left] = std::move(flight);
        left++;
      }
    }
    flights.resize(left);
    if (landed.high > landed.low) restore_protection(*block, landed);
    if (left > 0) in_flight_[kept++] = block;
  }
  in_flight_.resize(kept);
}

void Pages::leave_open(Block& block, const Span& span) {
  open(block, span);
  left_open_.emplace_back(&block, span);
}

void Pages::protect_left_open() {
  for (auto& [block, span] : left_open_) restore_protection(*block, span);
  left_open_.clear();
}

void Pages::clear() {
  for (Block* block : in_flight_) {
    block->flights.clear();
    restore_protection(*block, {block->base, block->base + block->capacity, nullptr});
  }
  in_flight_.clear();
  protect_left_open();
}

}  // namespace simulated
