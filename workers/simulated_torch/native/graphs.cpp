// Capture and replay of CUDA graphs.
#include "graphs.h"

#include <c10/util/Exception.h>

#include "machine.h"

namespace simulated {

Graph::Graph(int pool) : pool(pool) {
  Locked lock(machine());
  machine().memory.keep_pool(pool);
}

Graph::~Graph() {
  Locked lock(machine());
  machine().memory.drop_pool(pool);
}

void Machine::begin_capture(const GraphPtr& graph) {
  Locked lock(*this);
  enter("begin_capture");
  TORCH_CHECK(capturing_ == nullptr, "a stream is being captured already");
  TORCH_CHECK(graph->tasks.empty(), "a graph is captured once");
  capturing_ = graph;
  captured_stream_ = current();
}

void Machine::end_capture() {
  Locked lock(*this);
  TORCH_CHECK(capturing_ != nullptr, "no stream is being captured");
  capturing_ = nullptr;
}

void Machine::capture(uint32_t op, Uses uses, std::function<void()> run, uint32_t site) {
  capturing_->tasks.push_back({op, site, std::move(uses), std::move(run)});
}

void Machine::refuse_in_capture(const char* what) const {
  TORCH_CHECK(capturing_ == nullptr, what, " is not permitted while a stream is being captured");
}

void Machine::replay(const GraphPtr& graph) {
  Locked lock(*this);
  enter("replay");
  refuse_in_capture("a replay");
  decide(kReplayCall);
  for (size_t i = 0; i < graph->tasks.size(); i++) {
    const auto& captured = graph->tasks[i];
    // The task keeps the graph alive, like any work in flight.
    enqueue(captured.op, count(captured.op), captured.uses, [graph, i] { graph->tasks[i].run(); }, captured.site);
  }
}

}  // namespace simulated
