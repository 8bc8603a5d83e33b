// PyTorch's device interface: allocators, a guard with streams and events, hooks, generators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tensors.h"

namespace simulated {
namespace {

c10::Device the_device() { return {kDeviceType, 0}; }
c10::Stream handle_of(int stream) { return c10::Stream(c10::Stream::UNSAFE, the_device(), stream); }
int stream_of(const c10::Stream& stream) { return static_cast<int>(stream.id()); }

void release(void* base) {
  if (base != nullptr) machine().release(reinterpret_cast<uintptr_t>(base));
}

struct DeviceMemory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &release, the_device()};
    auto* base = reinterpret_cast<void*>(machine().allocate(size, false));
    TORCH_CHECK_WITH(OutOfMemoryError, base != nullptr, "the simulated device is out of memory: ", size,
                     " bytes were requested, ", machine().memory.counts().used, " of ", machine().memory.limit,
                     " are in use");
    return {base, base, &release, the_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    default_copy_data(target, source, count);
  }
  bool initialized() override { return true; }
  // Cached memory is not needed elsewhere, and a program that empties the cache should get the same blocks again.
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (orders("record_stream")) machine().record_use(reinterpret_cast<uintptr_t>(data.get()), stream_of(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto& counts = machine().memory.counts();
    for (auto* bytes : {&stats.allocated_bytes[0], &stats.active_bytes[0], &stats.requested_bytes[0]}) {
      bytes->current = static_cast<int64_t>(counts.used);
      bytes->peak = static_cast<int64_t>(counts.used_max);
    }
    stats.reserved_bytes[0].current = stats.reserved_bytes[0].peak = static_cast<int64_t>(counts.reserved);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { machine().memory.reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    return {machine().memory.limit - machine().memory.counts().used, machine().memory.limit};
  }
};

DeviceMemory device_memory;
REGISTER_ALLOCATOR(kDeviceType, &device_memory);

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    auto* base = reinterpret_cast<void*>(machine().allocate(size, true));
    TORCH_CHECK(base != nullptr, "no pinned memory is left: ", size, " bytes were requested");
    return {base, base, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    default_copy_data(target, source, count);
  }
};

PinnedMemory pinned_memory;

struct Event {
  RecordPtr record;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device) const override { return the_device(); }
  c10::Device getDevice() const override { return the_device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return handle_of(Machine::current()); }
  c10::Stream getDefaultStream(c10::Device) const override { return handle_of(0); }
  c10::Stream getNewStream(c10::Device, int) const override { return handle_of(machine().new_stream()); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return handle_of(machine().new_stream()); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    int before = Machine::current();
    Machine::set_current(stream_of(stream));
    return handle_of(before);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return !orders("query") || machine().query_stream(stream_of(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (orders("synchronize")) machine().synchronize_stream(stream_of(stream));
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    if (orders("synchronize")) machine().synchronize_device();
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (!orders("record")) return;
    if (*event == nullptr) *event = new Event();
    static_cast<Event*>(*event)->record = machine().record(stream_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (orders("wait")) machine().wait(stream_of(stream), event == nullptr ? nullptr : static_cast<Event*>(event)->record);
  }
  bool queryEvent(void* event) const override {
    return !orders("query") || machine().query(event == nullptr ? nullptr : static_cast<Event*>(event)->record);
  }
  void synchronizeEvent(void* event) const override {
    if (orders("synchronize")) machine().synchronize(event == nullptr ? nullptr : static_cast<Event*>(event)->record);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  // The device has no clock: each task takes one microsecond.
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    TORCH_CHECK(from != nullptr && to != nullptr, "both events must have been recorded");
    const auto &first = static_cast<Event*>(from)->record, &last = static_cast<Event*>(to)->record;
    TORCH_CHECK(first && last && first->done && last->done, "both events must have been recorded and completed");
    return 1e-3 * (static_cast<double>(last->tasks_run) - static_cast<double>(first->tasks_run));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (orders("record_stream")) machine().record_use(reinterpret_cast<uintptr_t>(data.get()), stream_of(stream));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// A generator like Philox: a seed, and an offset that the host advances at each launch.
struct Generator final : c10::GeneratorImpl {
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;

  Generator() : c10::GeneratorImpl(the_device(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  // Deterministic, so that a run can be repeated in another process.
  uint64_t seed() override {
    set_current_seed(mix(seed_ + 1));
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.numel() == 16,
                "the state of a generator of the simulated device is 16 bytes");
    auto* words = static_cast<const uint64_t*>(state.data());
    seed_ = words[0];
    offset_ = words[1];
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({16}, at::TensorOptions().dtype(at::kByte));
    auto* words = static_cast<uint64_t*>(state.data_ptr());
    words[0] = seed_;
    words[1] = offset_;
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* made = new Generator();
    made->seed_ = seed_;
    made->offset_ = offset_;
    return made;
  }
  uint64_t draw() {
    uint64_t drawn = mix(mix(seed_) ^ offset_);
    offset_ += 4;
    return drawn;
  }
  // splitmix64 of Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
  static uint64_t mix(uint64_t word) {
    word += 0x9e3779b97f4a7c15ull;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::make_generator<Generator>(); }
  c10::Device getDeviceFromPtr(void*) const override { return the_device(); }
  bool isPinnedPtr(const void* data) const override { return machine().is_pinned(reinterpret_cast<uintptr_t>(data)); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto data = device_memory.allocate(size);
    TORCH_CHECK(storage.nbytes() == 0 || size == 0, "a storage of the simulated device is not resized with its contents");
    storage.set_data_ptr_noswap(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(size);
  }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};

}  // namespace

void register_backend() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }

c10::Allocator* device_allocator() { return &device_memory; }

const at::Generator& default_generator() {
  static at::Generator made = at::make_generator<Generator>();
  return made;
}

uint64_t draw_seed(const std::optional<at::Generator>& generator) {
  const auto& used = generator && generator->defined() ? *generator : default_generator();
  TORCH_CHECK(used.device().type() == kDeviceType, "a generator of ", used.device(), " cannot draw on the simulated device");
  Locked lock(machine());
  return static_cast<Generator*>(used.unsafeGetGeneratorImpl())->draw();
}

at::Tensor host_view(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  c10::DataPtr data(const_cast<void*>(storage.data()), c10::Device(c10::DeviceType::CPU));
  auto over = c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), nullptr, false);
  auto view = at::detail::make_tensor<c10::TensorImpl>(std::move(over), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                       tensor.dtype());
  auto* impl = view.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (tensor.is_conj()) impl->_set_conj(true);
  if (tensor.is_neg()) impl->_set_neg(true);
  return view;
}

at::Tensor device_view(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cpu() && is_pinned(tensor), "only pinned memory can be seen by the device");
  auto* owner = new c10::Storage(tensor.storage());
  c10::DataPtr data(const_cast<void*>(tensor.storage().data()), owner,
                    [](void* held) { delete static_cast<c10::Storage*>(held); }, the_device());
  auto over = c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(data), nullptr, false);
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(over), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return view;
}

at::Tensor weak_view(const at::Tensor& tensor) {
  TORCH_CHECK(on_device(tensor), "only tensors of the simulated device have weak views here");
  c10::DataPtr data(const_cast<void*>(tensor.storage().data()), the_device());
  auto over = c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(data), nullptr, false);
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(over), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return view;
}

std::vector<at::Tensor> tagged(int tag) {
  std::vector<at::Tensor> found;
  Locked lock(machine());
  for (const Block* block : machine().memory.tagged(tag)) {
    auto size = static_cast<int64_t>(block->tenancies.back().size);
    c10::DataPtr data(reinterpret_cast<void*>(block->base), the_device());
    auto over = c10::Storage(c10::Storage::use_byte_size_t(), size, std::move(data), nullptr, false);
    found.push_back(at::detail::make_tensor<c10::TensorImpl>(
        std::move(over), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), caffe2::TypeMeta::Make<uint8_t>()));
    found.back().unsafeGetTensorImpl()->set_sizes_contiguous(size);
  }
  return found;
}

Span span_of(const at::Tensor& tensor) {
  return span_of(first_byte(tensor), tensor.sizes().data(), tensor.strides().data(), tensor.dim(),
                 static_cast<int64_t>(tensor.element_size()));
}

void add_use(Uses& uses, const at::Tensor& tensor, bool write) {
  if (tensor.numel() > 0) machine().add_use(uses, storage_base(tensor), span_of(tensor), write);
}

bool is_pinned(const at::Tensor& tensor) { return machine().is_pinned(storage_base(tensor)); }

void resize(const at::Tensor& tensor, c10::IntArrayRef sizes) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->sizes() == sizes) return;
  impl->set_sizes_contiguous(sizes);
  size_t needed = (impl->numel() + impl->storage_offset()) * tensor.element_size();
  if (needed <= tensor.storage().nbytes()) return;
  tensor.storage().set_data_ptr_noswap(device_memory.allocate(needed));
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(needed);
}

void launch(uint32_t op, Uses uses, std::function<void()> compute) {
  machine().launch(op, std::move(uses), [compute = std::move(compute)] {
    c10::InferenceMode mode(true);
    compute();
  });
}

}  // namespace simulated
