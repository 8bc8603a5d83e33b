// Graphs: tasks that were captured instead of run, and are launched again as they are, in their order, by each replay.
#pragma once
#include <functional>

#include "types.h"

namespace simulated {

// A launch as it was captured: its memory, its numbers and where it was launched from stay those of the capture.
struct Captured {
  uint32_t op = 0;
  uint32_t site = 0;
  Uses uses;
  std::function<void()> run;
};

// What one stream was given between the begin and the end of a capture.
// Memory allocated meanwhile is of the graph's pool: nobody but captures into the same pool is handed it out again.
struct Graph {
  explicit Graph(int pool);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const int pool;
  std::vector<Captured> tasks;
};
using GraphPtr = std::shared_ptr<Graph>;

}  // namespace simulated
