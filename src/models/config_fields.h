// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "json/json_field.h"

namespace lockstep {

// Fields that the config.json of several families have.

/// The most elements that a tensor of an untrusted config.json can have.
inline constexpr int64_t most_tensor_elements = int64_t{1} << 40;

/// Returns the id of a token, or nothing if it is outside the vocabulary. The first id of a list counts.
template <class Json>
std::optional<int64_t> token_of(const JsonField<Json>& field, int64_t vocabulary) {
  const Json& all = field.json();
  const Json& id = all.is_array() && !all.empty() ? all[0] : all;
  if (!id.is_number_integer() || id < 0 || id >= vocabulary) return std::nullopt;
  return id.template get<int64_t>();
}

/// Throws UserError unless the field is missing or has the only supported value.
template <class Json>
void require_missing_or(const JsonField<Json>& field, const Json& value) {
  field.require_is(field.is_null() || field.json() == value, value.dump());
}

/// Returns PyTorch's name of a dtype.
constexpr const char* torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

}  // namespace lockstep
