// Ordering calls of the host: their source lines, and the calls that are skipped on purpose.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sites.h"

namespace simulated {

// A source line, by the end of its file's path.
using Line = std::pair<std::string, int>;

class Orders {
 public:
  // Count a call at a site; return false if the call is to be skipped.
  bool make(const char* call, uint32_t site, const SourceLine* line);
  // Skip the ordering calls at these lines, until the next run begins.
  void leave_out(std::vector<Line> lines) { left_out_ = std::move(lines); }
  bool leaves_out() const { return !left_out_.empty(); }
  // Number of calls since the run began, by name and site.
  const std::map<std::pair<std::string, uint32_t>, uint64_t>& made() const { return made_; }
  void clear();

 private:
  std::map<std::pair<std::string, uint32_t>, uint64_t> made_;
  std::vector<Line> left_out_;
};

// Record an ordering call of the program; return false if it is to be skipped. Call without the machine's lock.
bool orders(const char* call);

}  // namespace simulated
