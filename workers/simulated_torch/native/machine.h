// The simulated device: streams of tasks, events, and host calls; at each host call the policy may run tasks.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "graphs.h"
#include "orders.h"
#include "pages.h"
#include "races.h"

namespace simulated {

// One recording of an event: done when all tasks launched before it on its stream have run.
//
// The record of a gate is done when all expected ranks have arrived, each with the record of its stream.
struct Record {
  int stream = 0;
  bool done = false;
  Clock clock;
  uint64_t tasks_run = 0;  // by the device when it was done: the device's time
  std::shared_ptr<Gate> gate;
  std::vector<std::shared_ptr<Record>> arrived;  // at the gate
};
using RecordPtr = std::shared_ptr<Record>;

enum class TaskKind { kOp, kRecord, kWait };

struct Task {
  TaskKind kind = TaskKind::kOp;
  Label label;
  uint32_t site = 0;
  Uses uses;
  std::function<void()> run;
  RecordPtr record;
  size_t digest = SIZE_MAX;  // its index in the list of digests
  uint64_t time = 0;
};

struct Stream {
  std::string name;
  std::deque<Task> queue;
  Clock clock;
  int rank = 0;  // the rank that made it: a device of its own
};

enum class Policy { kEager, kLazy, kRandom };

struct Hold {
  uint32_t op;
  int64_t op_step;
  uint32_t until;
  int64_t until_step;
};

struct Settings {
  Policy policy = Policy::kEager;
  uint64_t seed = 0;
  std::vector<Hold> holds;
  bool races = true;
  bool guard = true;
  bool digests = false;
  bool writers = false;  // keep the last writers of all memory
  bool closed = false;  // protect device memory from the host
  int fill = -1;    // byte that a new block is filled with; -1: keep the bytes of its previous owner
  int poison = -1;  // byte that fills the target of a copy to the host until the copy has run; -1: keep its bytes
};

// Hashes of the bytes that a task read and wrote.
struct Digests {
  Label label;
  int stream;
  uint32_t site;
  std::vector<uint64_t> reads, writes;
};

// Op numbers of the device's own host calls and tasks.
constexpr uint32_t kRecordCall = 1, kWaitCall = 2, kQueryCall = 3, kFillOp = 4, kReplayCall = 5;

// A host thread: the order of its calls after the work of streams, and after the calls of other hosts.
struct Host {
  Clock clock;
  int rank = 0;
  bool is_active = false;  // has called the device in this run
};

struct Counts {
  uint64_t tasks = 0, run = 0, synchronizations = 0, pending_max = 0;
};

class Machine {
 public:
  Machine();

  // Calls of the host.
  void launch(uint32_t op, Uses uses, std::function<void()> run);
  RecordPtr record(int stream);
  void wait(int stream, const RecordPtr& record);
  void synchronize(const RecordPtr& record);
  void synchronize_stream(int stream) { synchronize(record(stream)); }
  // Wait for all streams of the calling thread's rank.
  void synchronize_device();
  // Make this thread a new host of a rank, and that rank's default stream its current stream.
  void enter_rank(int rank);
  // Return the order that this host's calls have by now, and order its further calls after another host's.
  Clock host_clock();
  void join_host_clock(const Clock& clock);
  // Add the work enqueued so far on the current stream to a gate.
  void arrive(const RecordPtr& gate);
  // Return whether a record is done; if not, run one task that it depends on, so that polling ends.
  bool query(const RecordPtr& record);
  bool query_stream(int stream);
  // Add launches on the current stream to a graph instead of running them, until the end of the capture.
  void begin_capture(const GraphPtr& graph);
  void end_capture();
  bool captures() const { return capturing_ != nullptr && current() == captured_stream_; }
  // Refuse a call that would run or order work during a capture.
  void refuse_in_capture(const char* what) const;
  // Launch the tasks of a graph on the current stream.
  void replay(const GraphPtr& graph);
  // Pass a named point of the host: release the tasks that are held until then.
  void point(uint32_t name);
  void step(int64_t number);

  // Begin a run: drained, without recorded uses and races. With `new_streams` the caller holds no streams, and the
  // existing ones are used again.
  void begin(const Settings& settings, bool new_streams);
  void drain();
  // Forget all enqueued tasks; their records are done.
  void drop();

  int new_stream();
  static int current();
  static void set_current(int stream);
  // Return the default stream of the calling thread's rank.
  int default_stream();

  uintptr_t allocate(size_t size, bool pinned);
  void release(uintptr_t base);
  // Do not reuse a block before the work enqueued so far on this stream has run.
  void record_use(uintptr_t base, int stream);
  void name(uintptr_t base, std::string name);
  // Add the use of a tensor's bytes to `uses`, if the memory is the device's or pinned.
  void add_use(Uses& uses, uintptr_t storage, Span span, bool write);
  bool is_pinned(uintptr_t address);
  // Fill the target of a copy to the host, unless the copy runs immediately or a task in flight uses the bytes.
  void poison(const Use& use, int byte);
  // Record a host access to device memory, which a GPU would not allow. Called for a page fault.
  void record_bypass(Block& block, bool write);
  // Return whether all hosts of a stream's rank that have called the device are ordered after its work until a time.
  bool all_hosts_know(int actor, uint64_t time) const;
  // Check a host access against the tasks in flight; return whether it is a race. Called for a page fault.
  bool check_host_access(Block& block, const Span& bytes, bool write);

  bool watched() const { return settings.races || settings.guard || settings.digests || settings.writers; }
  uint32_t number_of(const std::string& name);
  const std::string& name_of(uint32_t number) const { return names_[number]; }
  // Returns the random key of an op's name; called once for each name.
  std::function<std::pair<uint32_t, uint32_t>(bool host, const std::string& name)> draw_key;
  // Lets another host thread run; called without the lock where this one waits and no task can run.
  std::function<void()> give_way;

  std::vector<Stream> streams;
  Settings settings;
  Memory memory;
  Races races;
  Pages pages;
  Orders orders;
  Counts counts;
  std::vector<Side> bypasses;
  std::vector<Digests> digests;  // in launch order
  std::map<std::string, uint64_t> forced;  // by op: synchronisations that a GPU would not need

 private:
  friend class Locked;
  friend class Unlocked;

  bool runs_immediately() const { return settings.policy == Policy::kEager && held_.empty(); }
  uint32_t count(uint32_t op);
  void capture(uint32_t op, Uses uses, std::function<void()> run, uint32_t site);
  // Enqueue a task on the current stream.
  void enqueue(uint32_t op, uint32_t nth, Uses uses, std::function<void()> run, uint32_t site);
  // Order this host's further calls after a clock.
  void order_host_after(const Clock& clock);
  Host& host();
  void note_uses(const Task& task, int stream);
  void push(int stream, Task task);
  void run(int stream, Task task);
  void run_head(int stream);
  bool has_ready_task(int stream);
  void finish(Record& record);
  // Return whether a record is done; a gate becomes done here.
  bool is_done(Record& record);
  void pass_label(uint32_t name, int64_t step);
  // Let the policy run tasks: before a host call takes effect, or while the host is blocked on a record.
  void decide(uint32_t host_call);
  void decide(uint32_t host_call, uint32_t nth);
  void await(const RecordPtr& record);
  void run_toward(const RecordPtr& record);
  // Run a task that a record waits for, or, if none can run, let another host thread run.
  void advance(const RecordPtr& record);
  void run_eagerly();
  // Return the stream with the most urgent next task, and its urgency; -1 if no task can run.
  std::pair<int, uint64_t> most_urgent();
  uint64_t urgency(bool host, uint32_t name, int64_t step, uint32_t nth);
  // Called first in every host call: protect again the memory that was left accessible.
  void enter(const char* call);
  void refuse_inside_a_task(const char* what) const;

  std::recursive_mutex mutex_;
  int locked_ = 0;  // how often the owner has locked the mutex
  std::map<int, int> default_streams_;  // by rank
  std::vector<Host> hosts_{1};
  std::array<int, kRanksMax + 1> streams_made_{};  // by rank
  int64_t step_ = 0;
  bool left_open_ = false;
  size_t pending_ = 0;
  GraphPtr capturing_;
  int captured_stream_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::pair<int64_t, uint32_t>> counted_;  // by op: the last step, and its number of launches in that step
  std::map<std::pair<uint32_t, int64_t>, std::vector<std::pair<uint32_t, int64_t>>> held_;
  std::map<std::pair<bool, uint32_t>, std::pair<uint32_t, uint32_t>> draw_keys_;
};

Machine& machine();

// The lock of the machine. A waiting thread releases the GIL, so the owner may take the GIL at any time.
class Locked {
 public:
  explicit Locked(Machine& machine);
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Machine& machine_;
};

// Releases the lock of the machine, however often it was taken, and takes it again.
class Unlocked {
 public:
  explicit Unlocked(Machine& machine);
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Machine& machine_;
  int times_;
};

}  // namespace simulated
