// Tensors of the device, and the CPU tensors over the same bytes that tasks compute with.
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

// A CPU tensor over the bytes of a tensor, which it does not own: a task must not keep memory from being handed out
// again, or there would be no use after free to find. The bytes themselves live as long as the process.
at::Tensor host_view(const at::Tensor& tensor);
// A tensor of the device over pinned memory of the host, which it keeps alive.
at::Tensor device_view(const at::Tensor& tensor);
// A tensor of the device over the same bytes, which it does not keep.
at::Tensor weak_view(const at::Tensor& tensor);
// Tensors of bytes over the memory that bears a tag; they do not keep it.
std::vector<at::Tensor> tagged(int tag);

// The bytes that a tensor reaches.
Span span_of(const at::Tensor& tensor);
void add_use(Uses& uses, const at::Tensor& tensor, bool write);
bool is_pinned(const at::Tensor& tensor);
void resize(const at::Tensor& tensor, c10::IntArrayRef sizes);

// Launch a task that computes with CPU tensors.
void launch(uint32_t op, Uses uses, std::function<void()> compute);

const at::Generator& default_generator();
// Seed of the next random op of a generator of the device: a function of its seed and of how much it has drawn.
uint64_t draw_seed(const std::optional<at::Generator>& generator);

// Register the boxed fallback for an op whose kernel would not ask for the device, and so would run at once.
void queue_op(const std::string& library, const std::string& name);

}  // namespace simulated
