// Source lines of the program under test, read from the stack of the running Python thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace simulated {

struct SourceLine {
  std::string file;
  int line;
  std::string function;
};

// Set the path prefixes of library files: their lines are skipped. Call once, with the GIL.
void begin_sites(std::vector<std::string> libraries);
// Add prefixes of files to skip. Call with the GIL.
void pass_over(const std::vector<std::string>& libraries);
// Return the number of the current site: the innermost source lines outside libraries. 0: no Python stack.
uint32_t here();
// The same from a signal handler on any thread; a thread without Python code returns the main thread's site.
uint32_t here_in_signal();
// Return the source lines of a site, innermost first. Call with the GIL.
std::vector<SourceLine> lines_of(uint32_t site);

}  // namespace simulated
