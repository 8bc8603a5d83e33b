// Fallback kernel for operators without a kernel of the device: a task that calls the CPU kernel.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <unordered_map>

#include "operators.h"
#include "tensors.h"

namespace simulated {
namespace {

using Values = std::vector<c10::IValue>;
using Stack = torch::jit::Stack;
constexpr size_t kShapesMax = 1 << 14;

// One call of an operator on tensors of the device.
struct Call {
  const c10::OperatorHandle& handle;
  const Operator& op;
  Values arguments;
};

bool is_device(const c10::IValue& value) { return value.isDevice() && value.toDevice().type() == kDeviceType; }

at::Tensor for_task(const at::Tensor& tensor) {
  // Host tensors are copied at the launch.
  return on_device(tensor) ? host_view(tensor) : tensor.clone();
}

// Views are created immediately: they access no bytes.
void make_view(const Call& call, Stack& stack) {
  Stack on_host;
  at::Tensor base;
  for (const auto& argument : call.arguments)
    on_host.push_back(map_tensors(argument, [&](const at::Tensor& tensor) {
      if (!on_device(tensor)) return tensor;
      if (!base.defined()) base = tensor;
      return host_view(tensor);
    }));
  call.handle.callBoxed(&on_host);
  for (const auto& result : on_host)
    stack.push_back(map_tensors(result, [&](const at::Tensor& view) {
      // A view has the key set of its base; otherwise it would track versions although its base does not.
      auto made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()),
                                                           base.key_set(), view.dtype());
      made.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(), view.storage_offset());
      return made;
    }));
}

struct Indexes {
  bool by_mask = false, from_host = false;
};

Indexes indexes_of(const Call& call) {
  Indexes found;
  if (!call.op.is_index) return found;
  for (const auto& argument : call.arguments) {
    if (!argument.isOptionalTensorList() && !argument.isTensorList()) continue;
    each_tensor(argument, [&](const at::Tensor& index) {
      found.by_mask |= index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
      found.from_host |= !on_device(index) && index.dim() > 0;
    });
  }
  return found;
}

Uses uses_of(const Call& call) {
  Uses uses;
  for (size_t i = 0; i < call.arguments.size(); i++)
    each_tensor(call.arguments[i], [&](const at::Tensor& tensor) {
      if (on_device(tensor)) add_use(uses, tensor, call.op.writes[i]);
    });
  return uses;
}

// Return the arguments for the CPU kernel when the task runs.
std::shared_ptr<Stack> captured(const Call& call) {
  auto stack = std::make_shared<Stack>();
  for (const auto& argument : call.arguments) {
    if (is_device(argument)) stack->push_back(c10::Device(c10::DeviceType::CPU));
    else if (argument.isGenerator()) stack->push_back(c10::IValue());
    else stack->push_back(map_tensors(argument, for_task));
  }
  if (call.op.generator < 0) return stack;
  machine().refuse_in_capture("to draw random numbers");
  const auto& given = call.arguments[call.op.generator];
  auto seed = draw_seed(given.isGenerator() ? std::optional(given.toGenerator()) : std::nullopt);
  (*stack)[call.op.generator] = at::make_generator<at::CPUGeneratorImpl>(seed);
  return stack;
}

// Return the shapes of an operator's results for these arguments, none if unknown.
std::optional<Shapes> inferred(const Call& call) {
  static std::unordered_map<std::string, Shapes> known;
  auto key = shape_key(call.op, call.arguments);
  Locked lock(machine());
  if (key) {
    auto found = known.find(*key);
    if (found != known.end()) return found->second;
  }
  Stack stack;
  for (const auto& argument : call.arguments) {
    if (argument.isDevice()) stack.push_back(c10::Device(c10::DeviceType::Meta));
    else if (argument.isGenerator()) stack.push_back(c10::IValue());
    else
      stack.push_back(map_tensors(argument, [](const at::Tensor& tensor) {
        if (tensor.is_cpu() && tensor.dim() == 0) return tensor;
        return at::empty_strided(tensor.sizes(), tensor.strides(),
                                 tensor.options().device(c10::DeviceType::Meta).pinned_memory(false));
      }));
  }
  try {
    call.handle.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  }
  Shapes shapes;
  for (const auto& result : stack) {
    shapes.emplace_back();
    each_tensor(result, [&](const at::Tensor& tensor) {
      shapes.back().push_back({tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()});
    });
  }
  if (known.size() > kShapesMax) known.clear();
  if (key) known.emplace(*key, shapes);
  return shapes;
}

// Run an operator while the host waits, because its result sizes depend on values.
void run_now(const Call& call, Stack& stack) {
  auto results = captured(call);
  std::vector<std::pair<at::Tensor, at::Tensor>> resized;
  for (size_t i = 0; i < call.arguments.size(); i++) {
    const auto& argument = call.arguments[i];
    if (!call.op.writes[i] || !argument.isTensor() || !on_device(argument.toTensor()) || argument.toTensor().numel())
      continue;
    auto on_host = at::empty({0}, argument.toTensor().options().device(c10::DeviceType::CPU));
    resized.emplace_back(argument.toTensor(), on_host);
    (*results)[i] = on_host;
  }
  launch(call.op.name, uses_of(call), [handle = call.handle, results] { handle.callBoxed(results.get()); });
  machine().synchronize_stream(Machine::current());
  auto filled = [&](const at::Tensor& target, const at::Tensor& values) {
    Uses uses;
    add_use(uses, target, true);
    launch(call.op.name, std::move(uses), [to = host_view(target), values] { to.copy_(values); });
  };
  for (const auto& [tensor, values] : resized) {
    resize(tensor, values.sizes());
    filled(tensor, values);
  }
  for (size_t i = 0; i < call.op.returned.size(); i++) {
    if (call.op.returned[i] >= 0) {
      stack.push_back(call.arguments[call.op.returned[i]]);
      continue;
    }
    stack.push_back(map_tensors((*results)[i], [&](const at::Tensor& values) {
      auto made = empty_like_strided(values.sizes(), values.strides(), values.scalar_type());
      filled(made, values);
      return made;
    }));
  }
}

// Return whether an empty out= tensor takes the size of the result.
bool resizes_output(const Call& call) {
  bool found = false;
  for (size_t i = 0; i < call.arguments.size(); i++)
    if (call.op.writes[i])
      each_tensor(call.arguments[i], [&](const at::Tensor& tensor) { found |= on_device(tensor) && !tensor.numel(); });
  return found;
}

// Create the tensors that an operator returns; return false if their sizes cannot be inferred.
bool make_results(const Call& call, Values& results, std::vector<at::Tensor>& fresh) {
  // An operator without results does not resize its arguments.
  bool resizes = !call.op.returned.empty() && resizes_output(call);
  std::optional<Shapes> shapes;
  if (call.op.num_fresh > 0 || resizes) {
    shapes = inferred(call);
    if (!shapes) return false;
  }
  for (size_t i = 0; i < call.op.returned.size(); i++) {
    if (call.op.returned[i] >= 0) {
      const auto& argument = call.arguments[call.op.returned[i]];
      if (resizes && argument.isTensor() && on_device(argument.toTensor()))
        resize(argument.toTensor(), (*shapes)[i].at(0).sizes);
      results.push_back(argument);
      continue;
    }
    std::vector<at::Tensor> made;
    for (const auto& shape : (*shapes)[i]) made.push_back(empty_like_strided(shape.sizes, shape.strides, shape.dtype));
    fresh.insert(fresh.end(), made.begin(), made.end());
    if (call.op.returns_list[i]) results.emplace_back(std::move(made));
    else results.push_back(made.empty() ? c10::IValue(at::Tensor()) : c10::IValue(made[0]));
  }
  return true;
}

void launch_later(const Call& call, Stack& stack) {
  Values results;
  std::vector<at::Tensor> fresh, into;
  if (!make_results(call, results, fresh)) {
    machine().forced[machine().name_of(call.op.name)]++;
    return run_now(call, stack);
  }
  Uses uses = uses_of(call);
  for (const auto& tensor : fresh) {
    add_use(uses, tensor, true);
    into.push_back(host_view(tensor));
  }
  launch(call.op.name, std::move(uses), [handle = call.handle, &op = call.op, given = captured(call), into] {
    // A copy, because a graph may run this again.
    Stack values = *given;
    handle.callBoxed(&values);
    size_t next = 0;
    for (size_t i = 0; i < op.returned.size() && next < into.size(); i++) {
      if (op.returned[i] >= 0) continue;
      each_tensor(values[i], [&](const at::Tensor& computed) {
        const auto& target = into.at(next++);
        // Shape function or CPU kernel may omit a result that only kernels of other devices need.
        if (computed.numel() == 0 || target.numel() == 0) return;
        TORCH_CHECK(computed.sizes() == target.sizes(), "computed ", computed.sizes(), " where ", target.sizes(),
                    " was inferred");
        target.copy_(computed);
      });
    }
  });
  for (auto& result : results) stack.push_back(std::move(result));
}

void fallback(const c10::OperatorHandle& handle, c10::DispatchKeySet, Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below;
  size_t count = handle.schema().arguments().size();
  Call call{handle, operator_of(handle), Values(stack->end() - count, stack->end())};
  stack->erase(stack->end() - count, stack->end());
  if (call.op.is_view) return make_view(call, *stack);
  Indexes indexes = indexes_of(call);
  // Like a GPU: indexes on the host are copied to the device, and the host waits.
  if (indexes.from_host) machine().synchronize_stream(Machine::current());
  if (call.op.sizes_from_values || indexes.by_mask) return run_now(call, *stack);
  launch_later(call, *stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace

void queue_op(const std::string& library, const std::string& name) {
  // A registration lasts as long as its library object.
  static std::vector<std::unique_ptr<torch::Library>> kept;
  kept.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, library, c10::DispatchKey::PrivateUse1,
                                                  __FILE__, __LINE__));
  kept.back()->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace simulated
