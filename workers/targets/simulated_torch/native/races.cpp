// Race detector: accesses of the same bytes, at least one a write, that no stream order, event or wait orders.
//
// Clocks are taken when a task is launched, so that one run stands for every schedule of the same program.
#include "races.h"

namespace simulated {
namespace {

std::string key_of(const Access& access, const Tenancy& owner) {
  return std::to_string(access.actor) + (access.write ? "w" : "r") + std::to_string(access.label.op) + "@" +
         std::to_string(access.site) + "@" + owner.name + "@" + std::to_string(owner.site) + "|";
}

Side side_of(const Block& block, const Access& access) {
  return {access.actor, access.write, access.label, access.site, block.tenancy(access.tenancy)};
}

}  // namespace

void Races::touch(const Use& use, const Clock& clock, const Clock& host, const Access& access) {
  auto& accesses = use.block->accesses;
  size_t kept = 0;
  for (size_t i = 0; i < accesses.size(); i++) {
    Access& before = accesses[i];
    // Whatever is launched from now on is ordered after what the host has waited for.
    if (host.knows(before.actor, before.time)) continue;
    bool ordered = clock.knows(before.actor, before.time);
    if (!ordered && (before.write || access.write) && overlap(before.span, access.span))
      note(*use.block, before, access);
    if (ordered && (access.write || !before.write) && covers(access.span, before.span)) continue;
    if (kept != i) accesses[kept] = std::move(before);
    kept++;
  }
  accesses.resize(kept);
  accesses.push_back(access);
}

void Races::note(const Block& block, const Access& first, const Access& second) {
  Side a = side_of(block, first), b = side_of(block, second);
  auto [place, is_new] = known_.try_emplace(key_of(first, a.owner) + key_of(second, b.owner), found_.size());
  if (is_new) {
    uint64_t low = std::max(first.span.low, second.span.low), high = std::min(first.span.high, second.span.high);
    found_.push_back({a, b, low - block.base, high - block.base, 0});
  }
  found_[place->second].count++;
}

void Races::clear() {
  found_.clear();
  known_.clear();
}

}  // namespace simulated
