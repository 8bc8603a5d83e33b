// Ordering calls of the host: their source lines, and the calls that are skipped on purpose.
#include <Python.h>

#include "machine.h"

namespace simulated {
namespace {

bool is_at(const SourceLine& place, const Line& line) {
  const auto& [file, number] = line;
  return place.line == number && place.file.size() >= file.size() &&
         place.file.compare(place.file.size() - file.size(), file.size(), file) == 0;
}

}  // namespace

bool Orders::make(const char* call, uint32_t site, const SourceLine* line) {
  made_[{call, site}]++;
  if (line == nullptr) return true;
  for (const auto& left_out : left_out_)
    if (is_at(*line, left_out)) return false;
  return true;
}

void Orders::clear() {
  made_.clear();
  left_out_.clear();
}

bool orders(const char* call) {
  auto& all = machine().orders;
  if (!machine().watched()) return true;
  uint32_t site = here();
  std::vector<SourceLine> lines;
  if (all.leaves_out()) {
    auto gil = PyGILState_Ensure();
    lines = lines_of(site);
    PyGILState_Release(gil);
  }
  Locked lock(machine());
  return all.make(call, site, lines.empty() ? nullptr : &lines[0]);
}

}  // namespace simulated
