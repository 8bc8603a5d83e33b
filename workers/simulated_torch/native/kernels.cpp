// The device's own kernels: allocation, views, copies between host and device, item(), convolution.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <cstring>

#include "tensors.h"

namespace simulated {
namespace {

uint32_t named(const char* name) { return machine().number_of(name); }

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return empty_like_strided(sizes, strides, c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& tensor, c10::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  resize(tensor, sizes);
  return tensor;
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, int64_t offset, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  if (strides.data() == nullptr || strides.size() != sizes.size()) {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides, offset);
  }
  return tensor;
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  if (orders("record_stream")) machine().record_use(storage_base(tensor), static_cast<int>(stream.id()));
}

// A copy between tensors of the device is a task like any other.
void copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  static const uint32_t op = named("copy_d2d");
  Uses uses;
  add_use(uses, source, false);
  add_use(uses, target, true);
  launch(op, std::move(uses), [from = host_view(source), to = host_view(target)] { to.copy_(from); });
}

// Like CUDA: contiguous pinned memory of the same dtype is read when the copy runs; other memory is staged, so its
// bytes are read at the launch.
void copy_to_device(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  static const uint32_t direct = named("copy_h2d"), staged = named("copy_h2d_staged");
  bool alike = source.dtype() == target.dtype() && source.is_conj() == target.is_conj() &&
               source.is_neg() == target.is_neg();
  bool reads_later = alike && source.is_contiguous() && is_pinned(source);
  bool waits = !non_blocking && (!reads_later || orders("blocking copy"));
  // Like PyTorch: a graph would replay the host's bytes of the capture.
  if (!reads_later) machine().refuse_in_capture("a copy from memory that is not pinned");
  Uses uses;
  if (reads_later) add_use(uses, source, false);
  add_use(uses, target, true);
  auto from = reads_later ? host_view(source) : source.clone();
  launch(reads_later ? direct : staged, std::move(uses), [from, to = host_view(target)] { to.copy_(from); });
  if (reads_later) machine().record_use(storage_base(source), Machine::current());
  if (waits) machine().synchronize_stream(Machine::current());
}

// Like CUDA: the host waits for a copy to the host, unless its target is contiguous pinned memory.
void copy_to_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  static const uint32_t direct = named("copy_d2h"), staged = named("copy_d2h_staged");
  bool pinned = target.is_contiguous() && is_pinned(target);
  Uses uses;
  add_use(uses, source, false);
  if (pinned) {
    bool waits = !non_blocking && orders("blocking copy");
    add_use(uses, target, true);
    int byte = machine().settings.poison;
    auto to = host_view(target);
    if (byte >= 0 && !waits) machine().poison(uses.back(), byte);
    launch(direct, std::move(uses), [from = host_view(source), to] { to.copy_(from); });
    machine().record_use(storage_base(target), Machine::current());
    if (waits) machine().synchronize_stream(Machine::current());
    return;
  }
  auto through = at::empty(target.sizes(), target.options().pinned_memory(false));
  launch(staged, std::move(uses), [from = host_view(source), through] { through.copy_(from); });
  machine().synchronize_stream(Machine::current());
  target.copy_(through);
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::AutoDispatchBelowADInplaceOrView below;
  if (target.numel() == 0) return target;
  auto from = source.sizes() == target.sizes() ? source : source.expand_as(target);
  if (on_device(source) && on_device(target)) copy_on_device(from, target);
  else if (on_device(target)) copy_to_device(from, target, non_blocking);
  else copy_to_host(from, target, non_blocking);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (on_device(target)) resize(target, source.sizes());
  else target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  static const uint32_t op = named("item");
  at::AutoDispatchBelowADInplaceOrView below;
  Uses uses;
  add_use(uses, tensor, false);
  auto number = std::make_shared<at::Scalar>();
  launch(op, std::move(uses), [from = host_view(tensor), number] { *number = at::_local_scalar_dense(from); });
  machine().synchronize_stream(Machine::current());
  return *number;
}

using Convolved = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor shape_of(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::DeviceType::Meta));
}

std::optional<at::Tensor> view_of(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional(host_view(*tensor)) : std::nullopt;
}

// PyTorch calls these kernels, which only external devices implement, for convolutions.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  static const uint32_t op = named("convolution");
  at::AutoDispatchBelowADInplaceOrView below;
  auto shape = at::convolution(shape_of(input), shape_of(weight), std::nullopt, stride, padding, dilation, transposed,
                               output_padding, groups);
  auto result = empty_like_strided(shape.sizes(), shape.strides(), shape.scalar_type());
  Uses uses;
  add_use(uses, input, false);
  add_use(uses, weight, false);
  if (bias && bias->defined()) add_use(uses, *bias, false);
  add_use(uses, result, true);
  launch(op, std::move(uses),
         [to = host_view(result), x = host_view(input), w = host_view(weight), b = view_of(bias), stride = stride.vec(),
          padding = padding.vec(), dilation = dilation.vec(), transposed, output_padding = output_padding.vec(), groups] {
           to.copy_(at::convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups));
         });
  return result;
}

Convolved convolution_backward(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                               c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                               bool transposed, c10::IntArrayRef output_padding, int64_t groups,
                               std::array<bool, 3> wanted) {
  static const uint32_t op = named("convolution_backward");
  at::AutoDispatchBelowADInplaceOrView below;
  std::vector<int64_t> num_channels{transposed ? weight.size(1) * groups : weight.size(0)};
  std::array<at::Tensor, 3> results;
  Uses uses;
  for (const auto& read : {gradient, input, weight}) add_use(uses, read, false);
  const std::array<c10::IntArrayRef, 3> sizes{input.sizes(), weight.sizes(), num_channels};
  for (size_t i = 0; i < 3; i++) {
    if (!wanted[i]) continue;
    results[i] = at::detail::empty_generic(sizes[i], device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), gradient.scalar_type(), {});
    add_use(uses, results[i], true);
  }
  std::array<at::Tensor, 3> into;
  for (size_t i = 0; i < 3; i++)
    if (wanted[i]) into[i] = host_view(results[i]);
  launch(op, std::move(uses),
         [into, dy = host_view(gradient), x = host_view(input), w = host_view(weight), num_channels,
          stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(), transposed,
          output_padding = output_padding.vec(), groups, wanted] {
           auto [dx, dw, db] = at::convolution_backward(dy, x, w, num_channels, stride, padding, dilation, transposed,
                                                        output_padding, groups, wanted);
           if (wanted[0]) into[0].copy_(dx);
           if (wanted[1]) into[1].copy_(dw);
           if (wanted[2]) into[2].copy_(db);
         });
  return {results[0], results[1], results[2]};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
  library.impl("set_.source_Storage", &at::native::set_);
  library.impl("view", &at::native::view);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("record_stream", &record_stream);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);
}

// A copy handles lazy conjugation and negation itself: resolving them first would be another copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) { library.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, library) { library.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace
}  // namespace simulated
