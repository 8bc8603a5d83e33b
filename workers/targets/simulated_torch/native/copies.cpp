// Kernels that are the device's own: allocation, views, copies between host and device, reading a number.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
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
  machine().record_use(storage_base(tensor), static_cast<int>(stream.id()));
}

// A copy between tensors of the device is a task like any other.
void copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  static const uint32_t op = named("copy_d2d");
  Uses uses;
  add_use(uses, source, false);
  add_use(uses, target, true);
  launch(op, std::move(uses), [from = host_view(source), to = host_view(target)] { to.copy_(from); });
}

// As CUDA: contiguous pinned memory of the same dtype is read when the copy runs; everything else is staged, and so its
// bytes are taken now.
void copy_to_device(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  static const uint32_t direct = named("copy_h2d"), staged = named("copy_h2d_staged");
  bool reads_later = source.is_contiguous() && source.dtype() == target.dtype() &&
                     source.sizes() == target.sizes() && is_pinned(source);
  Uses uses;
  if (reads_later) add_use(uses, source, false);
  add_use(uses, target, true);
  auto from = reads_later ? host_view(source) : source.clone();
  launch(reads_later ? direct : staged, std::move(uses), [from, to = host_view(target)] { to.copy_(from); });
  if (reads_later) machine().record_use(storage_base(source), Machine::current());
  if (!non_blocking) machine().synchronize_stream(Machine::current());
}

// As CUDA: the host does not wait for a copy into contiguous pinned memory; every other it does.
void copy_to_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  static const uint32_t direct = named("copy_d2h"), staged = named("copy_d2h_staged");
  bool pinned = target.is_contiguous() && is_pinned(target);
  Uses uses;
  add_use(uses, source, false);
  if (pinned) {
    add_use(uses, target, true);
    int byte = machine().settings.poison;
    auto to = host_view(target);
    if (byte >= 0 && non_blocking) machine().poison(uses.back(), byte);
    launch(direct, std::move(uses), [from = host_view(source), to] { to.copy_(from); });
    machine().record_use(storage_base(target), Machine::current());
    if (!non_blocking) machine().synchronize_stream(Machine::current());
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
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

}  // namespace
}  // namespace simulated
