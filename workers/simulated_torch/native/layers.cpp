// Transformer layers as one task each, like an engine's fused kernels: norms, rotary embeddings, gated activations.
//
// Each computes the same PyTorch operators in the same order, so the results are bit-identical.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

namespace simulated {
namespace {

// Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + epsilon) * weight;
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                                const at::Tensor& weight, double epsilon) {
  auto sum = x + residual;
  return {rms_norm(sum, weight, epsilon), sum};
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t head_size) {
  auto heads = x.reshape({cos.size(0), -1, head_size});
  int64_t half = cos.size(-1);
  auto low = heads.narrow(-1, 0, half), high = heads.narrow(-1, half, half);
  auto kept = heads.narrow(-1, 2 * half, head_size - 2 * half);
  return at::cat({low * cos - high * sin, high * cos + low * sin, kept}, -1).reshape(x.sizes());
}

// Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, halves rotated as in GPT-NeoX.
std::tuple<at::Tensor, at::Tensor> rotary_embedding(const at::Tensor& positions, const at::Tensor& query,
                                                    const at::Tensor& key, const at::Tensor& cos_sin_cache,
                                                    int64_t head_size) {
  auto cos_sin = cos_sin_cache.index_select(0, positions.flatten()).unsqueeze(1).chunk(2, -1);
  return {rotated(query, cos_sin[0], cos_sin[1], head_size), rotated(key, cos_sin[0], cos_sin[1], head_size)};
}

// Shazeer, "GLU Variants Improve Transformer", 2020.
at::Tensor silu_and_mul(const at::Tensor& x) {
  auto halves = x.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

TORCH_LIBRARY(simulated, library) {
  library.def("rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor");
  library.def("add_rms_norm(Tensor x, Tensor residual, Tensor weight, float epsilon) -> (Tensor, Tensor)");
  library.def(
      "rotary_embedding(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int head_size)"
      " -> (Tensor, Tensor)");
  library.def("silu_and_mul(Tensor x) -> Tensor");
}

void implement(torch::Library& library) {
  library.impl("rms_norm", &rms_norm);
  library.impl("add_rms_norm", &add_rms_norm);
  library.impl("rotary_embedding", &rotary_embedding);
  library.impl("silu_and_mul", &silu_and_mul);
}

TORCH_LIBRARY_IMPL(simulated, CPU, library) { implement(library); }
// Used to infer the sizes of results.
TORCH_LIBRARY_IMPL(simulated, Meta, library) { implement(library); }

}  // namespace
}  // namespace simulated
