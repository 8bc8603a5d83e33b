// Vector clocks with gates: the order of work that waits for other ranks.
#include "types.h"

namespace simulated {

void Gate::add(const Clock& clock) {
  arrived.push_back(clock);
  if (arrived.size() < num_expected) return;
  Clock joined;
  for (const auto& each : arrived) joined.join(each);
  arrived = {joined};
  is_complete = true;
}

void Clock::add_gates(const Clock& other) {
  for (const auto& gate : other.gates)
    if (std::find(gates.begin(), gates.end(), gate) == gates.end()) gates.push_back(gate);
}

void Clock::join_gates(const Clock& other) {
  add_gates(other);
  // Nothing more arrives at a complete gate: take its clock in its place. The gates grow in this loop; ranks that wait
  // for each other may make a circle of gates, so each is taken once.
  for (size_t i = 0; i < gates.size(); i++) {
    auto gate = gates[i];
    if (!gate->is_complete) continue;
    join_times(gate->arrived[0]);
    add_gates(gate->arrived[0]);
  }
  auto is_complete = [](const std::shared_ptr<Gate>& gate) { return gate->is_complete; };
  gates.erase(std::remove_if(gates.begin(), gates.end(), is_complete), gates.end());
}

bool Clock::is_known_by_gate(int actor, uint64_t time) const {
  auto reached = gates;
  for (size_t i = 0; i < reached.size(); i++) {
    auto current = reached[i];  // the vector grows below
    for (const auto& clock : current->arrived) {
      if (clock.at[actor] >= time) return true;
      for (const auto& gate : clock.gates)
        if (std::find(reached.begin(), reached.end(), gate) == reached.end()) reached.push_back(gate);
    }
  }
  return false;
}

}  // namespace simulated
