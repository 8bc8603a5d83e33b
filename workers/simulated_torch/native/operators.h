// What the schema of an operator says about it: what it writes, what it returns, whether its host must wait.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace simulated {

struct Operator {
  uint32_t name = 0;
  bool is_view = false;
  bool is_index = false;         // takes indexes, of which a mask has as many results as it has ones
  bool sizes_from_values = false;  // how much it returns is known only when it has run
  int generator = -1;
  std::vector<bool> writes;      // of each argument
  std::vector<int> returned;     // of each result: which argument it is, or -1
  std::vector<bool> returns_list;
  size_t num_fresh = 0;
};

// Sizes, strides and dtype of a tensor; those of all tensors of each result.
struct Shape {
  std::vector<int64_t> sizes, strides;
  at::ScalarType dtype;
};
using Shapes = std::vector<std::vector<Shape>>;

// The same object for the same operator.
const Operator& operator_of(const c10::OperatorHandle& handle);

// All that the shapes of an operator's results follow from; none if it cannot be said in short.
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
