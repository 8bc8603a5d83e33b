// Calls of the host that order work: from which line each was made, and those that are left out on purpose.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sites.h"

namespace simulated {

// A line of the program, by the end of its file's path.
using Line = std::pair<std::string, int>;

class Orders {
 public:
  // Count a call made at a site; false if it is to be left out there.
  bool make(const char* call, uint32_t site, const SourceLine* line);
  // Leave out what orders work at these lines, until the next run begins.
  void leave_out(std::vector<Line> lines) { left_out_ = std::move(lines); }
  bool leaves_out() const { return !left_out_.empty(); }
  // How often each call was made since the run began, by its name and site.
  const std::map<std::pair<std::string, uint32_t>, uint64_t>& made() const { return made_; }
  void clear();

 private:
  std::map<std::pair<std::string, uint32_t>, uint64_t> made_;
  std::vector<Line> left_out_;
};

// Note a call of the program that orders work; false if it is to be left out. The machine's lock must not be held.
bool orders(const char* call);

}  // namespace simulated
