// Python bindings of the device.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "sites.h"
#include "tensors.h"

namespace py = pybind11;

namespace simulated {

void register_backend();

namespace {

// Wrap a Python object so that a thread without the GIL may release it.
std::shared_ptr<py::object> kept(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            py::gil_scoped_acquire gil;
            delete held;
          }};
}

void begin(const std::string& policy, uint64_t seed,
           const std::vector<std::tuple<std::string, int64_t, std::string, int64_t>>& holds, bool races, bool guard,
           bool digests, bool writers, bool closed, int fill, int poison, bool new_streams) {
  Settings settings;
  settings.policy = policy == "eager" ? Policy::kEager : policy == "lazy" ? Policy::kLazy : Policy::kRandom;
  settings.seed = seed;
  for (const auto& [op, op_step, until, until_step] : holds)
    settings.holds.push_back({machine().number_of(op), op_step, machine().number_of(until), until_step});
  settings.races = races;
  settings.guard = guard;
  settings.digests = digests;
  settings.writers = writers;
  settings.closed = closed;
  settings.fill = fill;
  settings.poison = poison;
  machine().begin(settings, new_streams);
}

void enqueue(const std::string& name, const py::function& function, const std::vector<at::Tensor>& reads,
             const std::vector<at::Tensor>& writes) {
  auto task = kept(function);
  Uses uses;
  for (const auto& tensor : reads) add_use(uses, tensor, false);
  for (const auto& tensor : writes) add_use(uses, tensor, true);
  uint32_t op = machine().number_of(name);
  py::gil_scoped_release released;
  launch(op, std::move(uses), [task] {
    py::gil_scoped_acquire gil;
    (*task)();
  });
}

// (file, line, function), innermost first.
std::vector<std::tuple<std::string, int, std::string>> lines(uint32_t site) {
  std::vector<std::tuple<std::string, int, std::string>> found;
  for (auto& line : lines_of(site)) found.emplace_back(line.file, line.line, line.function);
  return found;
}

py::dict side(const Side& from) {
  py::dict made;
  made["actor"] = from.actor == kHost ? "host" : machine().streams[from.actor - 1].name;
  made["write"] = from.write;
  made["op"] = machine().name_of(from.label.op);
  made["step"] = from.label.step;
  made["nth"] = from.label.nth;
  made["lines"] = lines(from.site);
  made["buffer"] = from.owner.name;
  made["size"] = from.owner.size;
  made["tenancy"] = from.owner.number;
  made["allocated"] = lines(from.owner.site);
  return made;
}

py::list races() {
  Locked lock(machine());
  py::list found;
  for (const auto& race : machine().races.found()) {
    py::dict made;
    made["first"] = side(race.first);
    made["second"] = side(race.second);
    made["low"] = race.low;
    made["high"] = race.high;
    made["count"] = race.count;
    found.append(made);
  }
  return found;
}

// (call, lines, count)
py::list made_orders() {
  Locked lock(machine());
  py::list found;
  for (const auto& [call, count] : machine().orders.made())
    found.append(py::make_tuple(call.first, lines(call.second), count));
  return found;
}

py::list bypasses() {
  Locked lock(machine());
  py::list found;
  for (const auto& each : machine().bypasses) found.append(side(each));
  return found;
}

py::list digests() {
  Locked lock(machine());
  py::list found;
  for (const auto& task : machine().digests)
    found.append(py::make_tuple(machine().name_of(task.label.op), task.label.step, task.label.nth,
                                machine().streams[task.stream].name, lines(task.site), task.reads, task.writes));
  return found;
}

py::list writers(const at::Tensor& tensor) {
  Locked lock(machine());
  py::list found;
  Block* block = machine().memory.at(storage_base(tensor));
  if (block == nullptr) return found;
  for (const auto& each : last_writers(*block, span_of(tensor))) found.append(side(each));
  return found;
}

std::map<std::string, uint64_t> counts() {
  Locked lock(machine());
  const auto& counts = machine().counts;
  const auto& memory = machine().memory.counts();
  return {{"tasks", counts.tasks},
          {"run", counts.run},
          {"synchronizations", counts.synchronizations},
          {"pending_max", counts.pending_max},
          {"allocations", memory.allocations},
          {"reused", memory.reused},
          {"streams", machine().streams.size()}};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using released = py::call_guard<py::gil_scoped_release>;
  py::class_<Graph, GraphPtr>(module, "Graph")
      .def(py::init<int>())
      .def_property_readonly("num_tasks", [](const Graph& graph) { return graph.tasks.size(); });
  module.def("begin_capture", [](const GraphPtr& graph) { machine().begin_capture(graph); });
  module.def("end_capture", [] { machine().end_capture(); });
  module.def("captures", [] { return machine().captures(); });
  module.def("replay", [](const GraphPtr& graph) { machine().replay(graph); }, released());
  module.def("register", [](std::vector<std::string> libraries, py::function draw_key) {
    begin_sites(std::move(libraries));
    auto asked = kept(std::move(draw_key));
    machine().draw_key = [asked](bool host, const std::string& name) {
      py::gil_scoped_acquire gil;
      return (*asked)(host, name).cast<std::pair<uint32_t, uint32_t>>();
    };
    register_backend();
  });
  module.def("pass_over", &pass_over);
  module.def("begin", &begin, released());
  module.def("drain", [] { machine().drain(); }, released());
  module.def("drop", [] { machine().drop(); }, released());
  module.def("step", [](int64_t number) { machine().step(number); });
  module.def("point", [](const std::string& name) { machine().point(machine().number_of(name)); }, released());
  module.def("races", &races);
  module.def("orders", &made_orders);
  module.def("leave_out", [](std::vector<Line> lines) {
    Locked lock(machine());
    machine().orders.leave_out(std::move(lines));
  });
  module.def("bypasses", &bypasses);
  module.def("digests", &digests);
  module.def("writers", &writers);
  module.def("counts", &counts);
  module.def("forced", [] { return machine().forced; });
  module.def("synchronize", [] {
    if (orders("synchronize")) machine().synchronize_device();
  }, released());
  py::class_<Record, RecordPtr>(module, "Gate").def(py::init([](size_t num_ranks) {
    auto made = std::make_shared<Record>();
    made->gate = std::make_shared<Gate>(Gate{num_ranks, {}, false});
    made->clock.gates = {made->gate};
    return made;
  }));
  py::class_<Clock>(module, "Clock");
  module.def("host_clock", [] { return machine().host_clock(); });
  module.def("join_host_clock", [](const Clock& clock) { machine().join_host_clock(clock); });
  module.def("arrive", [](const RecordPtr& gate) { machine().arrive(gate); }, released());
  module.def("wait_for_gate", [](const RecordPtr& gate) { machine().wait(Machine::current(), gate); }, released());
  module.def("enter_rank", [](int rank) { machine().enter_rank(rank); });
  module.def("default_stream", [] { return machine().default_stream(); });
  module.def("give_way_by", [](py::function give_way) {
    auto asked = kept(std::move(give_way));
    machine().give_way = [asked] {
      py::gil_scoped_acquire gil;
      (*asked)();
    };
  });
  module.def("current_stream", &Machine::current);
  module.def("set_stream", [](int stream) {
    int before = Machine::current();
    Machine::set_current(stream);
    return before;
  });
  module.def("name_stream", [](int stream, std::string name) { machine().streams.at(stream).name = std::move(name); });
  module.def("name_buffer", [](const at::Tensor& tensor, std::string name) {
    machine().name(storage_base(tensor), std::move(name));
  });
  module.def("enqueue", &enqueue);
  module.def("queue_op", &queue_op);
  module.def("default_generator", &default_generator);
  module.def("host_view", &host_view);
  module.def("device_view", &device_view);
  module.def("weak_view", &weak_view);
  module.def("new_tag", [] { return machine().memory.new_tag(); });
  module.def("set_tag", [](int tag) { return machine().memory.set_tag(tag); });
  module.def("tagged", &tagged);
}

}  // namespace simulated
