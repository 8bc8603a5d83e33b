// Policies of the device: which stream runs its next task, before each host call and while the host is blocked.
//
// Eager runs all tasks that it can; lazy only the tasks that the blocked host needs; random compares random numbers of
// the first task of each stream and of the host call. They are the policies of workers/lanes/policies.py.
#include "machine.h"

#include <c10/util/Exception.h>

namespace simulated {
namespace {

// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"; see scenarios/draw.py.
uint64_t philox(uint64_t index, uint64_t seed, std::pair<uint32_t, uint32_t> key) {
  uint32_t c0 = index, c1 = index >> 32, c2 = seed, c3 = seed >> 32;
  auto [k0, k1] = key;
  for (int round = 0; round < 10; round++) {
    uint64_t product_0 = uint64_t{0xD2511F53} * c0, product_1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product_1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product_1);
    c2 = static_cast<uint32_t>(product_0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product_0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return uint64_t{c0} << 32 | c1;
}

}  // namespace

uint64_t Machine::urgency(bool host, uint32_t name, int64_t step, uint32_t nth) {
  auto [key, is_new] = draw_keys_.try_emplace({host, name});
  if (is_new) key->second = draw_key(host, name_of(name));
  return philox(static_cast<uint64_t>(step) << 16 | nth, settings.seed, key->second);
}

void Machine::finish(Record& record) {
  record.done = true;
  record.tasks_run = counts.run;
}

void Machine::pass_label(uint32_t name, int64_t step) {
  if (held_.empty()) return;
  for (auto each = held_.begin(); each != held_.end();) {
    auto& until = each->second;
    until.erase(std::remove(until.begin(), until.end(), std::make_pair(name, step)), until.end());
    each = until.empty() ? held_.erase(each) : std::next(each);
  }
}

// Remove records and satisfied waits at the head of a stream; return whether a task that may run is next.
bool Machine::has_ready_task(int stream) {
  auto& queue = streams[stream].queue;
  while (!queue.empty()) {
    Task& head = queue.front();
    if (head.kind == TaskKind::kOp) return held_.empty() || held_.count({head.label.op, head.label.step}) == 0;
    if (head.kind == TaskKind::kRecord) finish(*head.record);
    else if (!is_done(*head.record)) return false;
    queue.pop_front();
    pending_--;
  }
  return false;
}

void Machine::run_head(int stream) {
  Task task = std::move(streams[stream].queue.front());
  streams[stream].queue.pop_front();
  pending_--;
  run(stream, std::move(task));
}

void Machine::decide(uint32_t host_call) {
  if (pending_ > 0) decide(host_call, settings.policy == Policy::kRandom ? count(host_call) : 0);
}

void Machine::decide(uint32_t host_call, uint32_t nth) {
  if (pending_ == 0 || settings.policy == Policy::kLazy) return;
  if (settings.policy == Policy::kEager) return run_eagerly();
  uint64_t of_host = urgency(true, host_call, step_, nth);
  while (true) {
    auto [stream, of_task] = most_urgent();
    if (stream < 0 || of_host > of_task) return;
    run_head(stream);
  }
}

void Machine::run_eagerly() {
  for (size_t before = SIZE_MAX; pending_ != before;) {
    before = pending_;
    for (size_t stream = 0; stream < streams.size(); stream++)
      while (has_ready_task(static_cast<int>(stream))) run_head(static_cast<int>(stream));
  }
}

std::pair<int, uint64_t> Machine::most_urgent() {
  // A record that is done may unblock another stream.
  std::vector<int> able;
  for (size_t before = SIZE_MAX; pending_ != before;) {
    before = pending_;
    able.clear();
    for (size_t stream = 0; stream < streams.size(); stream++)
      if (has_ready_task(static_cast<int>(stream))) able.push_back(static_cast<int>(stream));
  }
  std::pair<int, uint64_t> best{-1, 0};
  for (int stream : able) {
    const Label& label = streams[stream].queue.front().label;
    uint64_t drawn = urgency(false, label.op, label.step, label.nth);
    if (best.first < 0 || drawn > best.second) best = {stream, drawn};
  }
  return best;
}

void Machine::await(const RecordPtr& record) {
  while (!is_done(*record)) advance(record);
}

void Machine::advance(const RecordPtr& record) {
  auto run_before = counts.run;
  auto pending_before = pending_;
  if (settings.policy == Policy::kEager) {
    run_eagerly();
  } else if (settings.policy == Policy::kLazy) {
    run_toward(record);
  } else if (int stream = most_urgent().first; stream >= 0) {
    run_head(stream);
  }
  if (is_done(*record) || counts.run != run_before || pending_ != pending_before) return;
  if (!held_.empty()) {
    // No task can run: release the held tasks, as a GPU would run them eventually.
    held_.clear();
    return;
  }
  TORCH_CHECK(give_way != nullptr, "the host waits for a task that no later call can launch");
  Unlocked unlocked(*this);
  give_way();
}

bool Machine::is_done(Record& record) {
  if (record.done || !record.gate || !record.gate->is_complete) return record.done;
  for (const auto& each : record.arrived)
    if (!each->done) return false;
  finish(record);
  return true;
}

void Machine::run_toward(const RecordPtr& record) {
  RecordPtr wanted = record;
  while (!is_done(*wanted)) {
    if (wanted->gate) {
      // Of a gate, the first arrived record that is not done is needed next.
      auto& arrived = wanted->arrived;
      auto next = std::find_if(arrived.begin(), arrived.end(), [](const RecordPtr& each) { return !each->done; });
      if (next == arrived.end()) break;
      wanted = *next;
      continue;
    }
    if (has_ready_task(wanted->stream)) break;
    const auto& queue = streams[wanted->stream].queue;
    if (queue.empty() || queue.front().kind != TaskKind::kWait) break;
    wanted = queue.front().record;
  }
  if (is_done(*wanted)) return;
  if (!wanted->gate && has_ready_task(wanted->stream)) return run_head(wanted->stream);
  if (held_.empty()) return;
  // The needed task is held: a task of another stream may release it.
  for (size_t stream = 0; stream < streams.size(); stream++)
    if (has_ready_task(static_cast<int>(stream))) return run_head(static_cast<int>(stream));
}

}  // namespace simulated
