// What the schema of an operator says about it: what it writes, what it returns, whether its host must wait.
#include "operators.h"

#include <ATen/core/jit_type.h>

#include <unordered_map>
#include <unordered_set>

#include "machine.h"

namespace simulated {
namespace {

bool returns_tensors(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    const auto& type = result.type();
    bool is_list = type->kind() == c10::TypeKind::ListType &&
                   type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
    if (type->kind() != c10::TypeKind::TensorType && !is_list) return false;
  }
  return true;
}

// "aten::index_put_.hacked" is index_put_: a name as schedules and reports write it.
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
    found.num_fresh += from < 0;
  }
  return found;
}

}  // namespace

const Operator& operator_of(const c10::OperatorHandle& handle) {
  static std::unordered_map<const c10::FunctionSchema*, Operator> known;
  Locked lock(machine());
  auto found = known.find(&handle.schema());
  if (found == known.end()) found = known.emplace(&handle.schema(), read(handle)).first;
  return found->second;
}

}  // namespace simulated
