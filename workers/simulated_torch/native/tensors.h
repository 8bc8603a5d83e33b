// Device tensors, and CPU tensors over the same bytes, which tasks compute with.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include "machine.h"

namespace simulated {

constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;

c10::Allocator* device_allocator();

inline bool on_device(const at::Tensor& tensor) { return tensor.device().type() == kDeviceType; }

inline uintptr_t storage_base(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.storage().data());
}

inline uintptr_t first_byte(const at::Tensor& tensor) {
  return storage_base(tensor) + tensor.storage_offset() * tensor.element_size();
}

inline at::Tensor empty_like_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
}

// Return a CPU tensor over a tensor's memory without ownership: if a task kept the memory allocated, a use after free
// could not be detected. The bytes stay mapped as long as the process lives.
at::Tensor host_view(const at::Tensor& tensor);
// Return a device tensor over pinned host memory, which it keeps alive.
at::Tensor device_view(const at::Tensor& tensor);
// Return a device tensor over the same memory, without ownership.
at::Tensor weak_view(const at::Tensor& tensor);
// Return byte tensors over the allocated memory with a tag, without ownership.
std::vector<at::Tensor> tagged(int tag);

// Return the bytes that a tensor covers.
Span span_of(const at::Tensor& tensor);
void add_use(Uses& uses, const at::Tensor& tensor, bool write);
bool is_pinned(const at::Tensor& tensor);
void resize(const at::Tensor& tensor, c10::IntArrayRef sizes);

// Launch a task that computes with CPU tensors.
void launch(uint32_t op, Uses uses, std::function<void()> compute);

const at::Generator& default_generator();
// Return the seed of the next random op: a function of the generator's seed and its offset.
uint64_t draw_seed(const std::optional<at::Generator>& generator);

// Register the boxed fallback for an op that has a kernel for all devices, which would run immediately.
void queue_op(const std::string& library, const std::string& name);

}  // namespace simulated
