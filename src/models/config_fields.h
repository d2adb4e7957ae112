// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/core/dtype.h"
#include "lockstep/json/json_field.h"
#include "lockstep/nn/language_model.h"

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

/// Returns the ids that a file names.
template <class Json>
TokenIds token_ids_of(const JsonField<Json>& file, int64_t vocabulary) {
  return {.count = {},
          .beginning_of_text = token_of(file["bos_token_id"], vocabulary),
          .end_of_text = token_of(file["eos_token_id"], vocabulary)};
}

/// Returns PyTorch's name of a dtype.
constexpr const char* torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

/// Adds the ids of tokens, whether the head is the token table, and the tensors' dtype.
template <class Json>
void add_common_fields(Json& file, const TokenIds& ids, bool tie_weights, DType dtype) {
  file["bos_token_id"] = json_or_null<Json>(ids.beginning_of_text);
  file["eos_token_id"] = json_or_null<Json>(ids.end_of_text);
  file["pad_token_id"] = nullptr;
  file["tie_word_embeddings"] = tie_weights;
  for (const char* key : {"dtype", "torch_dtype"}) file[key] = torch_name(dtype);
}

}  // namespace lockstep
