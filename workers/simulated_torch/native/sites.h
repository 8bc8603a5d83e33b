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

// Say which files are libraries (by prefix of their path): their lines are passed over. Call with the GIL, once.
void begin_sites(std::vector<std::string> libraries);
// Pass over lines of these, too. Call with the GIL.
void pass_over(const std::vector<std::string>& libraries);
// Return a number for where the program is now: its innermost lines outside libraries. 0: no Python stack.
uint32_t here();
// As `here`, from a signal handler on any thread; one that runs no Python stands for the main thread.
uint32_t here_in_signal();
// Return the lines behind a number, innermost first. Call with the GIL.
std::vector<SourceLine> lines_of(uint32_t site);

}  // namespace simulated
