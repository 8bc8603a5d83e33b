// Source lines of the program under test, read from the stack of the running Python thread.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "sites.h"

#include <array>
#include <map>
#include <unordered_map>

namespace simulated {
namespace {

constexpr int kDepth = 4;

struct Place {
  PyCodeObject* code = nullptr;
  int offset = 0;
  bool operator<(const Place& other) const {
    return code != other.code ? code < other.code : offset < other.offset;
  }
};
using Stack = std::array<Place, kDepth>;

// All fields are accessed with the GIL only. Code objects are kept alive, so that an address identifies one.
struct Sites {
  std::vector<std::string> libraries;
  std::unordered_map<PyCodeObject*, bool> is_library;
  std::map<Stack, uint32_t> numbers;
  std::vector<Stack> stacks{Stack{}};
  PyThreadState* main = nullptr;
};

Sites& sites() {
  static auto* made = new Sites();
  return *made;
}

bool is_library(PyCodeObject* code) {
  auto& known = sites().is_library;
  auto found = known.find(code);
  if (found != known.end()) return found->second;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  std::string path = file ? file : "";
  bool library = path.empty() || path[0] == '<';
  for (const auto& prefix : sites().libraries) library |= path.rfind(prefix, 0) == 0;
  Py_INCREF(code);
  return known[code] = library;
}

uint32_t number_of(PyThreadState* thread) {
  if (thread == nullptr) return 0;
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  Stack stack;
  int depth = 0;
  while (frame != nullptr && depth < kDepth) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (!is_library(code)) stack[depth++] = {code, PyFrame_GetLasti(frame)};
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  if (depth == 0) return 0;
  auto& known = sites();
  auto [found, is_new] = known.numbers.try_emplace(stack, static_cast<uint32_t>(known.stacks.size()));
  if (is_new) known.stacks.push_back(stack);
  return found->second;
}

}  // namespace

void begin_sites(std::vector<std::string> libraries) {
  sites().libraries = std::move(libraries);
  sites().is_library.clear();
  sites().main = PyThreadState_Get();
}

void pass_over(const std::vector<std::string>& libraries) {
  auto& known = sites().libraries;
  known.insert(known.end(), libraries.begin(), libraries.end());
  sites().is_library.clear();
}

uint32_t here() {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr || !Py_IsInitialized()) return 0;
  auto gil = PyGILState_Ensure();
  uint32_t number = number_of(thread);
  PyGILState_Release(gil);
  return number;
}

uint32_t here_in_signal() {
  if (PyGILState_GetThisThreadState() != nullptr) return here();
  // This is a worker thread of an operator that the main thread runs; the main thread has released the GIL.
  auto gil = PyGILState_Ensure();
  uint32_t number = number_of(sites().main);
  PyGILState_Release(gil);
  return number;
}

std::vector<SourceLine> lines_of(uint32_t site) {
  std::vector<SourceLine> found;
  for (const auto& place : sites().stacks.at(site)) {
    if (place.code == nullptr) break;
    const char* file = PyUnicode_AsUTF8(place.code->co_filename);
    const char* function = PyUnicode_AsUTF8(place.code->co_qualname);
    found.push_back({file ? file : "?", PyCode_Addr2Line(place.code, place.offset), function ? function : "?"});
  }
  return found;
}

}  // namespace simulated
