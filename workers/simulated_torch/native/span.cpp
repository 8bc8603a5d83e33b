// Byte geometry of tensors: the bytes of a strided view, and whether two views overlap.
#include "types.h"

namespace simulated {
namespace {

// Two views with more runs than this are assumed to overlap if their extents do.
constexpr int64_t kRunsMax = 1 << 16;

int64_t runs_of(const Span& span) {
  int64_t runs = 1;
  if (span.strides)
    for (auto [count, stride] : span.strides->outer) runs *= count;
  return runs;
}

template <class Visit>
void each_run(const Span& span, const Visit& visit) {
  if (!span.strides) {
    visit(span.low, span.high - span.low);
    return;
  }
  const auto& outer = span.strides->outer;
  std::vector<int64_t> index(outer.size(), 0);
  uintptr_t at = span.low;
  while (true) {
    visit(at, span.strides->run);
    size_t dim = outer.size();
    while (dim > 0) {
      dim--;
      at += outer[dim].second;
      if (++index[dim] < outer[dim].first) break;
      at -= outer[dim].second * outer[dim].first;
      index[dim] = 0;
      if (dim == 0) return;
    }
  }
}

std::vector<std::pair<uintptr_t, uintptr_t>> runs(const Span& span) {
  std::vector<std::pair<uintptr_t, uintptr_t>> found;
  each_run(span, [&](uintptr_t at, uint64_t length) { found.emplace_back(at, at + length); });
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Span span_of(uintptr_t base, const int64_t* sizes, const int64_t* strides, int64_t dims, int64_t element_size) {
  std::vector<std::pair<int64_t, int64_t>> outer;
  uint64_t extent = element_size;
  for (int64_t dim = 0; dim < dims; dim++) {
    if (sizes[dim] == 0) return {base, base, nullptr};
    if (sizes[dim] == 1 || strides[dim] == 0) continue;
    outer.emplace_back(sizes[dim], strides[dim] * element_size);
    extent += (sizes[dim] - 1) * strides[dim] * element_size;
  }
  std::sort(outer.begin(), outer.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  uint64_t run = element_size;
  while (!outer.empty() && outer.back().second <= static_cast<int64_t>(run)) {
    run = std::max(run, (outer.back().first - 1) * outer.back().second + run);
    outer.pop_back();
  }
  Span span{base, base + extent, nullptr};
  if (!outer.empty()) span.strides = std::make_shared<const Strides>(Strides{run, std::move(outer)});
  return span;
}

bool overlap(const Span& a, const Span& b) {
  if (a.low >= b.high || b.low >= a.high) return false;
  if (!a.strides && !b.strides) return true;
  if (runs_of(a) > kRunsMax || runs_of(b) > kRunsMax) return true;
  auto left = runs(a), right = runs(b);
  for (size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    if (left[i].first < right[j].second && right[j].first < left[i].second) return true;
    if (left[i].second <= right[j].second) i++;
    else j++;
  }
  return false;
}

bool covers(const Span& outer, const Span& inner) {
  if (!outer.strides) return outer.low <= inner.low && inner.high <= outer.high;
  return inner.strides && outer.low == inner.low && outer.high == inner.high && *outer.strides == *inner.strides;
}

uint64_t digest_of(const Span& span) {
  uint64_t hash = 0x9e3779b97f4a7c15ull;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  };
  each_run(span, [&](uintptr_t at, uint64_t length) {
    auto bytes = reinterpret_cast<const unsigned char*>(at);
    for (; length >= 8; length -= 8, bytes += 8) {
      uint64_t word;
      __builtin_memcpy(&word, bytes, 8);
      mix(word);
    }
    uint64_t rest = length;
    for (uint64_t i = 0; i < length; i++) rest = rest << 8 | bytes[i];
    mix(rest);
  });
  return hash;
}

}  // namespace simulated
