// Properties of an operator from its schema: its writes, its results, whether the host must wait for it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace simulated {

struct Operator {
  uint32_t name = 0;
  bool is_view = false;
  bool is_index = false;         // takes indexes; the result size of a mask depends on its values
  bool sizes_from_values = false;  // the size of its results is known only after it has run
  int generator = -1;
  std::vector<bool> writes;      // of each argument
  std::vector<int> returned;     // of each result: which argument it is, or -1
  std::vector<bool> returns_list;
  size_t num_fresh = 0;
};

// Sizes, strides and dtype of a tensor; `Shapes` has all tensors of each result.
struct Shape {
  std::vector<int64_t> sizes, strides;
  at::ScalarType dtype;
};
using Shapes = std::vector<std::vector<Shape>>;

// Return the properties; the same object for the same operator.
const Operator& operator_of(const c10::OperatorHandle& handle);

// Return a key of everything that determines the result shapes; none if there is no compact key.
std::optional<std::string> shape_key(const Operator& op, const std::vector<c10::IValue>& arguments);

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector())
      if (tensor && tensor->defined()) visit(*tensor);
  }
}

template <class Change>
c10::IValue map_tensors(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> changed;
    for (const at::Tensor& tensor : value.toTensorVector()) changed.push_back(change(tensor));
    return changed;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> changed;
    for (const auto& tensor : value.toOptionalTensorVector())
      changed.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(change(*tensor)) : std::nullopt);
    return changed;
  }
  return value;
}

}  // namespace simulated
