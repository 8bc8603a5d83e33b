// The simulated device: effects of host calls on streams, clocks and memory.
#include <Python.h>

#include "machine.h"

#include <c10/util/Exception.h>

#include <cstring>

#include "sites.h"

namespace simulated {
namespace {

thread_local int current_stream = 0;
thread_local int current_rank = 0;
thread_local int current_host = 0;
// The task that runs on this thread, and its actor.
thread_local const Task* running = nullptr;
thread_local int running_actor = kHost;

std::string where(uint32_t site) {
  if (!Py_IsInitialized()) return "";
  auto gil = PyGILState_Ensure();
  auto lines = lines_of(site);
  PyGILState_Release(gil);
  return lines.empty() ? "" : ", launched at " + lines[0].file + ":" + std::to_string(lines[0].line);
}

}  // namespace

Machine& machine() {
  static auto* made = new Machine();
  return *made;
}

Machine::Machine() {
  for (const char* name : {"host", "record", "wait", "query", "fill", "replay"}) number_of(name);
  streams.reserve(kStreamsMax);
  new_stream();
}

Locked::Locked(Machine& machine) : machine_(machine) {
  if (!machine_.mutex_.try_lock()) {
    bool has_gil = Py_IsInitialized() && PyGILState_Check();
    PyThreadState* state = has_gil ? PyEval_SaveThread() : nullptr;
    machine_.mutex_.lock();
    if (has_gil) PyEval_RestoreThread(state);
  }
  machine_.locked_++;
}

Locked::~Locked() {
  machine_.locked_--;
  machine_.mutex_.unlock();
}

Unlocked::Unlocked(Machine& machine) : machine_(machine), times_(machine.locked_) {
  machine_.locked_ = 0;
  for (int i = 0; i < times_; i++) machine_.mutex_.unlock();
}

Unlocked::~Unlocked() {
  bool has_gil = Py_IsInitialized() && PyGILState_Check();
  PyThreadState* state = has_gil ? PyEval_SaveThread() : nullptr;
  for (int i = 0; i < times_; i++) machine_.mutex_.lock();
  if (has_gil) PyEval_RestoreThread(state);
  machine_.locked_ = times_;
}

int Machine::current() { return current_stream; }
void Machine::set_current(int stream) { current_stream = stream; }

int Machine::new_stream() {
  Locked lock(*this);
  // As on a GPU, which has fewer streams in its pool, further streams are handles of existing ones of the same rank.
  int made = streams_made_[current_rank]++;
  int count = current_rank == 0 ? kStreamsOfFirst : kStreamsOfRank;
  int number = made < count ? made : 1 + made % (count - 1);
  int index = current_rank == 0 ? number : kStreamsOfFirst + (current_rank - 1) * kStreamsOfRank + number;
  if (index >= static_cast<int>(streams.size())) streams.resize(index + 1);
  if (made < count) {
    streams[index].name = "stream " + std::to_string(index);
    streams[index].rank = current_rank;
  }
  return index;
}

void Machine::enter_rank(int rank) {
  TORCH_CHECK(rank >= 0 && rank <= kRanksMax, "at most ", kRanksMax, " ranks are possible");
  Locked lock(*this);
  current_rank = rank;
  current_stream = default_stream();
  current_host = static_cast<int>(hosts_.size());
  hosts_.push_back({{}, rank, false});
}

Host& Machine::host() {
  hosts_[current_host].is_active = true;
  return hosts_[current_host];
}

Clock Machine::host_clock() {
  Locked lock(*this);
  return host().clock;
}

void Machine::join_host_clock(const Clock& clock) {
  Locked lock(*this);
  order_host_after(clock);
}

bool Machine::all_hosts_know(int actor, uint64_t time) const {
  int rank = streams[actor - 1].rank;
  return std::all_of(hosts_.begin(), hosts_.end(), [&](const Host& host) {
    return host.rank != rank || !host.is_active || host.clock.knows(actor, time);
  });
}

int Machine::default_stream() {
  Locked lock(*this);
  if (current_rank == 0) return 0;
  auto [found, is_new] = default_streams_.try_emplace(current_rank, 0);
  if (is_new) found->second = new_stream();
  return found->second;
}

uint32_t Machine::number_of(const std::string& name) {
  Locked lock(*this);
  auto [found, is_new] = numbers_.try_emplace(name, static_cast<uint32_t>(names_.size()));
  if (is_new) names_.push_back(name);
  return found->second;
}

uint32_t Machine::count(uint32_t op) {
  if (op >= counted_.size()) counted_.resize(names_.size(), {0, 0});
  auto& [in_step, number] = counted_[op];
  if (in_step != step_) number = 0;
  in_step = step_;
  return number++;
}

void Machine::refuse_inside_a_task(const char* what) const {
  TORCH_CHECK(running == nullptr, "a task launches device work (", what, "): a task receives views of device ",
              "memory as CPU tensors, and may use only these; it is ", name_of(running->label.op),
              where(running->site));
}

void Machine::enter(const char* call) {
  refuse_inside_a_task(call);
  pages.protect_again();
  if (left_open_) memory.protect_device(false);
  left_open_ = false;
}

void Machine::launch(uint32_t op, Uses uses, std::function<void()> run) {
  uint32_t site = watched() || captures() ? here() : 0;
  Locked lock(*this);
  enter(name_of(op).c_str());
  if (captures()) return capture(op, std::move(uses), std::move(run), site);
  uint32_t nth = count(op);
  decide(op, nth);
  enqueue(op, nth, std::move(uses), std::move(run), site);
}

void Machine::enqueue(uint32_t op, uint32_t nth, Uses uses, std::function<void()> run, uint32_t site) {
  Task task;
  task.label = {op, step_, nth};
  task.site = site;
  task.uses = std::move(uses);
  task.run = std::move(run);
  int stream = current();
  streams[stream].clock.join(host().clock);
  task.time = ++streams[stream].clock.at[stream + 1];
  note_uses(task, stream);
  if (settings.digests) {
    task.digest = digests.size();
    digests.push_back({task.label, stream, site, {}, {}});
  }
  counts.tasks++;
  push(stream, std::move(task));
}

void Machine::note_uses(const Task& task, int stream) {
  if (!settings.races && !settings.guard && !settings.writers) return;
  for (const auto& use : task.uses) {
    if (use.block->tenancies.empty()) use.block->tenancies.push_back({1, use.block->capacity, 0, ""});  // of a graph
    uint32_t tenancy = use.block->tenancies.back().number;
    Access access{use.span, use.write, stream + 1, task.time, task.label, task.site, tenancy};
    if (settings.races) races.touch(use, streams[stream].clock, host().clock, access);
    if (settings.guard && use.block->pinned) pages.add_in_flight(use, access);
    if (settings.writers && use.write) use.block->note_write(std::move(access));
  }
}

void Machine::push(int stream, Task task) {
  if (runs_immediately() && streams[stream].queue.empty()) {
    run(stream, std::move(task));
    return;
  }
  if (settings.guard)
    for (const auto& use : task.uses)
      if (use.block->pinned) pages.restore_protection(*use.block, use.span);
  streams[stream].queue.push_back(std::move(task));
  counts.pending_max = std::max<uint64_t>(counts.pending_max, ++pending_);
  if (settings.policy == Policy::kEager) run_eagerly();
}

void Machine::run(int stream, Task task) {
  struct Running {
    explicit Running(const Task& task, int stream) : stream_before(current_stream), task_before(running), actor_before(running_actor) {
      current_stream = stream, running = &task, running_actor = stream + 1;
    }
    ~Running() { current_stream = stream_before, running = task_before, running_actor = actor_before; }
    int stream_before;
    const Task* task_before;
    int actor_before;
  } now(task, stream);
  auto each_pinned = [&](auto&& does) {
    if (settings.guard)
      for (const auto& use : task.uses)
        if (use.block->pinned) does(*use.block, use.span);
  };
  auto open_all = [&](bool open) {
    each_pinned([&](Block& block, const Span& span) { open ? pages.open(block, span) : pages.restore_protection(block, span); });
    if (settings.closed) memory.protect_device(open);
  };
  open_all(true);
  auto digest = [&](bool write) {
    if (task.digest >= digests.size()) return;
    for (const auto& use : task.uses)
      if (write ? use.write : use.read) (write ? digests[task.digest].writes : digests[task.digest].reads).push_back(digest_of(use.span));
  };
  digest(false);
  counts.run++;
  try {
    task.run();
  } catch (c10::Error& error) {
    open_all(false);
    error.add_context("in the task " + name_of(task.label.op) + " of " + streams[stream].name + where(task.site));
    throw;
  } catch (...) {
    open_all(false);
    throw;
  }
  digest(true);
  open_all(false);
  // Tensors that the function holds are freed as part of the task.
  task.run = nullptr;
  pass_label(task.label.op, task.label.step);
}

RecordPtr Machine::record(int stream) {
  Locked lock(*this);
  enter("record");
  refuse_in_capture("a record");
  decide(kRecordCall);
  auto made = std::make_shared<Record>();
  made->stream = stream;
  streams[stream].clock.join(host().clock);
  made->clock = streams[stream].clock;
  if (streams[stream].queue.empty()) {
    finish(*made);
    return made;
  }
  Task task;
  task.kind = TaskKind::kRecord;
  task.record = made;
  streams[stream].queue.push_back(std::move(task));
  pending_++;
  return made;
}

void Machine::wait(int stream, const RecordPtr& record) {
  Locked lock(*this);
  enter("wait");
  refuse_in_capture("a wait");
  decide(kWaitCall);
  if (!record) return;
  streams[stream].clock.join(record->clock);
  if (is_done(*record)) return;
  Task task;
  task.kind = TaskKind::kWait;
  task.record = record;
  streams[stream].queue.push_back(std::move(task));
  pending_++;
}

void Machine::synchronize(const RecordPtr& record) {
  Locked lock(*this);
  enter("synchronize");
  refuse_in_capture("to synchronize");
  if (!record) return;
  counts.synchronizations++;
  await(record);
  TORCH_INTERNAL_ASSERT(record->done);
  order_host_after(record->clock);
}

void Machine::order_host_after(const Clock& clock) {
  host().clock.join(clock);
  pages.retire();
}

void Machine::synchronize_device() {
  Locked lock(*this);
  for (size_t stream = 0; stream < streams.size(); stream++)
    if (streams[stream].rank == current_rank) synchronize_stream(static_cast<int>(stream));
}

void Machine::arrive(const RecordPtr& gate) {
  Locked lock(*this);
  auto reached = record(current());
  gate->gate->add(reached->clock);
  gate->arrived.push_back(std::move(reached));
}

bool Machine::query(const RecordPtr& record) {
  Locked lock(*this);
  enter("query");
  refuse_in_capture("a query");
  decide(kQueryCall);
  if (!record) return true;
  if (is_done(*record)) {
    order_host_after(record->clock);
    return true;
  }
  uint64_t before = counts.run;
  run_toward(record);
  if (counts.run == before && !is_done(*record)) advance(record);
  return false;
}

bool Machine::query_stream(int stream) { return query(record(stream)); }

void Machine::point(uint32_t name) {
  Locked lock(*this);
  enter("point");
  decide(name, count(name));
  pass_label(name, step_);
}

void Machine::step(int64_t number) {
  Locked lock(*this);
  step_ = number;
}

void Machine::begin(const Settings& wanted, bool new_streams) {
  Locked lock(*this);
  drain();
  if (settings.closed) memory.protect_device(true);
  if (new_streams) streams_made_ = {1}, default_streams_.clear();
  for (auto& each : hosts_) each.is_active = false;
  pages.clear();
  memory.renew();
  races.clear();
  orders.clear();
  bypasses.clear();
  digests.clear();
  forced.clear();
  counted_.clear();
  counts = {};
  step_ = 0;
  settings = wanted;
  for (const auto& hold : wanted.holds) held_[{hold.op, hold.op_step}].emplace_back(hold.until, hold.until_step);
  if (wanted.guard || wanted.closed) take_signals();
  if (wanted.closed) memory.protect_device(false);
}

void Machine::drain() {
  Locked lock(*this);
  held_.clear();
  for (size_t stream = 0; stream < streams.size(); stream++) synchronize_stream(static_cast<int>(stream));
}

void Machine::drop() {
  Locked lock(*this);
  held_.clear();
  for (auto& stream : streams) {
    for (auto& task : stream.queue)
      if (task.kind == TaskKind::kRecord) finish(*task.record);
    // The destructor of a task may free memory, and so call the machine.
    auto dropped = std::move(stream.queue);
    stream.queue.clear();
  }
  pending_ = 0;
}

uintptr_t Machine::allocate(size_t size, bool pinned) {
  uint32_t site = watched() ? here() : 0;
  Locked lock(*this);
  refuse_inside_a_task("an allocation");
  int stream = current();
  if (settings.closed) memory.protect_device(true);
  int pool = captures() && !pinned ? capturing_->pool : 0;
  Block* block = memory.take(size, pinned, stream, pool, current_host, host().clock, streams[stream].clock, site);
  if (settings.closed) memory.protect_device(false);
  if (block == nullptr) return 0;
  // The lock of the allocator orders the host that gets a block after the host that has freed it.
  if (block->freed != nullptr) order_host_after(*std::exchange(block->freed, nullptr));
  if (!pinned && pool == 0 && settings.fill >= 0) {
    Task task;
    task.label = {kFillOp, step_, count(kFillOp)};
    task.site = site;
    task.run = [block, size, byte = settings.fill] { std::memset(reinterpret_cast<void*>(block->base), byte, size); };
    push(stream, std::move(task));
  }
  return block->base;
}

void Machine::release(uintptr_t base) {
  Locked lock(*this);
  Block* block = memory.at(base);
  TORCH_INTERNAL_ASSERT(block != nullptr && block->state == BlockState::kUsed);
  if (block->pinned)
    for (const auto& flight : block->flights)
      if (flight.write) races.discard(flight.actor, flight.time);
  for (int stream : block->streams) block->recorded.emplace_back(stream + 1, streams[stream].clock.at[stream + 1]);
  if (running != nullptr) block->recorded.emplace_back(running_actor, running->time);
  else if (hosts_.size() > 1) block->freed = std::make_unique<Clock>(host().clock);
  memory.give_back(block);
}

void Machine::record_use(uintptr_t base, int stream) {
  Locked lock(*this);
  Block* block = memory.at(base);
  if (block == nullptr || (!block->pinned && block->stream == stream)) return;
  auto& known = block->streams;
  if (std::find(known.begin(), known.end(), stream) == known.end()) known.push_back(stream);
}

void Machine::name(uintptr_t base, std::string name) {
  Locked lock(*this);
  Block* block = memory.at(base);
  TORCH_CHECK(block != nullptr, "only memory of the simulated device and pinned memory can be named");
  block->tenancies.back().name = std::move(name);
}

void Machine::add_use(Uses& uses, uintptr_t storage, Span span, bool write) {
  if (span.empty()) return;
  Block* block = memory.at(storage);
  if (block == nullptr) block = memory.around(span.low);
  if (block == nullptr) return;
  // An in-place op reads and writes the same bytes: one use.
  for (auto& use : uses)
    if (use.block == block && use.span.low == span.low && covers(use.span, span) && covers(span, use.span)) {
      (write ? use.write : use.read) = true;
      return;
    }
  uses.push_back({block, std::move(span), !write, write});
}

bool Machine::is_pinned(uintptr_t address) {
  Locked lock(*this);
  Block* block = memory.around(address);
  return block != nullptr && block->pinned;
}

void Machine::poison(const Use& use, int byte) {
  Locked lock(*this);
  if (!settings.guard || captures() || (runs_immediately() && streams[current()].queue.empty())) return;
  for (const auto& flight : use.block->flights)
    if (overlap(flight.span, use.span)) return;
  pages.open(*use.block, use.span);
  std::memset(reinterpret_cast<void*>(use.span.low), byte, use.span.high - use.span.low);
  pages.restore_protection(*use.block, use.span);
}

void Machine::record_bypass(Block& block, bool write) {
  memory.protect_device(true);
  left_open_ = true;
  uint32_t site = here_in_signal();
  for (const auto& known : bypasses)
    if (known.site == site && known.write == write) return;
  const auto& owner = block.tenancies.back();
  bypasses.push_back({kHost, write, {0, step_, 0}, site, owner});
}

bool Machine::check_host_access(Block& block, const Span& bytes, bool write) {
  // A task's accesses are its declared ones; their pages are accessible.
  if (running != nullptr) return false;
  std::vector<const Access*> unordered;
  for (const auto& flight : block.flights)
    if ((flight.write || write) && overlap(flight.span, bytes) && !host().clock.knows(flight.actor, flight.time))
      unordered.push_back(&flight);
  if (unordered.empty()) return false;
  uint32_t tenancy = block.tenancies.back().number;
  races.note(block, unordered, {bytes, write, kHost, 0, {0, step_, 0}, here_in_signal(), tenancy});
  return true;
}

}  // namespace simulated
