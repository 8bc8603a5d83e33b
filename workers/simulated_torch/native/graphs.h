// CUDA graphs: tasks that were captured instead of run; each replay launches them again, unchanged and in order.
#pragma once
#include <functional>

#include "types.h"

namespace simulated {

// A captured launch: replays use the memory, the numbers and the source site of the capture.
struct Captured {
  uint32_t op = 0;
  uint32_t site = 0;
  Uses uses;
  std::function<void()> run;
};

// The tasks launched on one stream during a capture.
// Memory allocated meanwhile belongs to the graph's pool: only captures into the same pool can reuse it.
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
