// Race detector: accesses to the same bytes, at least one a write, without an order by stream, event or wait.
//
// Clocks are read at the launch of a task, so one run covers every schedule of the same program.
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

std::vector<Side> last_writers(const Block& block, const Span& span) {
  std::vector<Side> found;
  for (auto write = block.writes.rbegin(); write != block.writes.rend(); ++write) {
    if (write->tenancy != block.tenancies.back().number || !overlap(write->span, span)) continue;
    found.push_back(side_of(block, *write));
    if (covers(write->span, span)) break;
  }
  return found;
}

void Races::touch(const Use& use, const Clock& clock, const Clock& host, const Access& access) {
  auto& accesses = use.block->accesses;
  size_t kept = 0;
  unordered_.clear();
  for (size_t i = 0; i < accesses.size(); i++) {
    Access& before = accesses[i];
    // Later launches are ordered after everything that the host has waited for.
    if (host.knows(before.actor, before.time)) continue;
    bool ordered = clock.knows(before.actor, before.time);
    if (ordered && (access.write || !before.write) && covers(access.span, before.span)) continue;
    auto [before_actor, before_time] = std::pair(before.actor, before.time);
    if (kept != i) accesses[kept] = std::move(before);
    bool matters = accesses[kept].write ? true : access.write && discarded_.count({before_actor, before_time}) == 0;
    if (!ordered && matters && overlap(accesses[kept].span, access.span))
      unordered_.push_back(&accesses[kept]);
    kept++;
  }
  if (!unordered_.empty()) note(*use.block, unordered_, access);
  accesses.resize(kept);
  accesses.push_back(access);
}

void Races::note(const Block& block, const std::vector<const Access*>& earlier, const Access& access) {
  uint32_t latest = 0;
  for (const Access* before : earlier) latest = std::max(latest, before->tenancy);
  std::vector<size_t> counted;
  for (const Access* before : earlier) {
    // A race with an earlier owner of the memory has the same missing order as the race with the latest one.
    if (before->tenancy != latest) continue;
    Side a = side_of(block, *before), b = side_of(block, access);
    auto [place, is_new] = known_.try_emplace(key_of(*before, a.owner) + key_of(access, b.owner), found_.size());
    if (is_new) {
      uint64_t low = std::max(before->span.low, access.span.low), high = std::min(before->span.high, access.span.high);
      found_.push_back({a, b, low - block.base, high - block.base, 0});
    }
    if (std::find(counted.begin(), counted.end(), place->second) != counted.end()) continue;
    counted.push_back(place->second);
    found_[place->second].count++;
  }
}

void Races::clear() {
  found_.clear();
  known_.clear();
  discarded_.clear();
}

}  // namespace simulated
