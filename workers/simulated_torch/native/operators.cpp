// Properties of an operator from its schema: its writes, its results, whether the host must wait for it.
#include "operators.h"

#include <ATen/core/jit_type.h>

#include <unordered_map>
#include <unordered_set>

#include "machine.h"

namespace simulated {
namespace {

bool is_tensor_list(const c10::Argument& result) {
  const auto& type = result.type();
  return type->kind() == c10::TypeKind::ListType &&
         type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns())
    if (result.type()->kind() != c10::TypeKind::TensorType && !is_tensor_list(result)) return false;
  return true;
}

// Return the name that schedules and reports use, e.g. index_put_ for "aten::index_put_.hacked".
std::string plain(const std::string& name) {
  std::string found = name.substr(name.rfind(':') + 1);
  for (char& letter : found) letter = std::isalnum(static_cast<unsigned char>(letter)) ? std::tolower(letter) : '_';
  return found;
}

Operator read(const c10::OperatorHandle& handle) {
  static const std::unordered_set<std::string> sizes_from_values{
      "aten::nonzero",        "aten::masked_select",      "aten::_unique",           "aten::_unique2",
      "aten::unique_dim",     "aten::unique_consecutive", "aten::unique_dim_consecutive",
      "aten::bincount",       "aten::nonzero_numpy",      "aten::argwhere"};
  const auto& schema = handle.schema();
  const auto& name = handle.operator_name().name;
  Operator found;
  found.name = machine().number_of(plain(name));
  found.sizes_from_values = sizes_from_values.count(name) > 0 || !returns_tensors(schema) ||
                            (name == "aten::repeat_interleave" && schema.overload_name() != "self_int");
  found.is_index = name.rfind("aten::index", 0) == 0 || name.rfind("aten::_index_put", 0) == 0 ||
                   name.rfind("aten::_unsafe_index", 0) == 0;
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    const auto& argument = schema.arguments()[i];
    found.writes.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    auto type = argument.type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::GeneratorType) found.generator = static_cast<int>(i);
  }
  for (const auto& result : schema.returns()) {
    int from = -1;
    const auto* alias = result.alias_info();
    for (size_t i = 0; alias != nullptr && from < 0 && i < schema.arguments().size(); i++) {
      const auto* other = schema.arguments()[i].alias_info();
      if (other != nullptr && other->beforeSets() == alias->beforeSets()) from = static_cast<int>(i);
    }
    found.is_view |= from >= 0 && !alias->isWrite();
    found.returned.push_back(from);
    found.returns_list.push_back(is_tensor_list(result));
    found.num_fresh += from < 0;
  }
  return found;
}

void append(std::string& key, int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); }

void append(std::string& key, const at::Tensor& tensor) {
  append(key, static_cast<int64_t>(tensor.scalar_type()) << 8 | tensor.dim());
  for (auto size : tensor.sizes()) append(key, size);
  for (auto stride : tensor.strides()) append(key, stride);
}

// Append an injective encoding of a value; return false if its type has none.
bool append(std::string& key, const c10::IValue& value) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (!tensor.defined()) return append(key, c10::IValue());
    // The value of a host tensor may affect the shapes, unless it is a wrapped number.
    if (tensor.is_cpu() && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) return false;
    key += tensor.is_cpu() ? 'w' : 't';
    append(key, tensor);
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    bool known = true;
    key += '[';
    for (const auto& each : value.toListRef()) known = known && append(key, each);
    key += ']';
    return known;
  } else if (value.isInt() || value.isBool()) {
    key += value.isInt() ? 'i' : 'b';
    append(key, value.isInt() ? value.toInt() : value.toBool());
  } else if (value.isDouble()) {
    double number = value.toDouble();
    key += 'd';
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  } else if (value.isIntList()) {
    key += 'l';
    append(key, static_cast<int64_t>(value.toIntVector().size()));
    for (auto number : value.toIntVector()) append(key, number);
  } else if (value.isString()) {
    key += 's' + value.toStringRef() + '\0';
  } else if (value.isNone() || value.isDevice() || value.isGenerator()) {
    key += value.isNone() ? 'n' : 'x';
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> shape_key(const Operator& op, const std::vector<c10::IValue>& arguments) {
  std::string key;
  append(key, static_cast<int64_t>(reinterpret_cast<uintptr_t>(&op)));
  for (const auto& argument : arguments)
    if (!append(key, argument)) return std::nullopt;
  return key;
}

const Operator& operator_of(const c10::OperatorHandle& handle) {
  static std::unordered_map<const c10::FunctionSchema*, Operator> known;
  Locked lock(machine());
  auto found = known.find(&handle.schema());
  if (found == known.end()) found = known.emplace(&handle.schema(), read(handle)).first;
  return found->second;
}

}  // namespace simulated
