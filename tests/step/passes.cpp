// SPDX-License-Identifier: Apache-2.0
#include "step/passes.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep {
namespace {

using Listed = std::vector<ListedKernel>;
using Passes = std::vector<Pass>;

std::string text_of(std::initializer_list<int64_t> extents) {
  std::string text;
  for (const int64_t extent : extents) text += (text.empty() ? "" : "×") + concat(extent);
  return text;
}

uint64_t blocks_of(const Listed& listed, size_t index) {
  return index < listed.size() ? listed[index].blocks : 0;
}

bool launches(const Listed& listed, const char* kernel) {
  return std::ranges::any_of(listed,
                             [&](const auto& one) { return one.name.find(kernel) != std::string::npos; });
}

/// Returns the rounds of a ColumnSum. Each block of 256 rows writes a row of fp32 sums, which the next round
/// reads.
Passes column_sum_passes(const ColumnSum& k) {
  Passes passes;
  const int64_t columns = k.y.size();
  double read = bytes_of_views(k.x);
  for (int64_t rows = k.x.size() / columns; rows > 0;) {
    const int64_t blocks = (rows + 255) / 256;
    const double written = 4.0 * static_cast<double>(blocks * columns);
    passes.push_back({"column_sum_kernel", Part::column_sums, {.bytes = read + written}});
    read = written;
    rows = blocks == 1 ? 0 : blocks;
  }
  return passes;
}

std::string label(const MatMul& k, const ParameterNames& names) {
  std::string of;
  for (const View* view : {&k.b, &k.c, &k.a})
    if (of.empty()) of = names.find(view->data);
  const bool adds_back = k.residual && k.residual.data == k.c.data;
  return concat(of, of.empty() ? "" : ": ", "a", k.transpose_a ? "ᵀ" : "", "·b", k.transpose_b ? "ᵀ" : "",
                " ", text_of({k.m(), k.k(), k.n()}), k.bias ? " + bias" : "",
                is_backward(k.activation)          ? ", GELU's gradient"
                : k.activation != Activation::none ? ", GELU"
                                                   : "",
                adds_back    ? " + before"
                : k.residual ? " + residual"
                             : "");
}

/// cuBLASLt's epilogue for column sums is a kernel of its own that reads b again, as an H200 has shown
/// (globalKernelBgradAB in bench/results/nvidia_h200_step.csv).
Passes passes_of(const MatMul& k, const Listed& listed) {
  MatMul product = k;
  product.column_sum = {};
  Passes passes{{"product", Part::products, cost(product)}};
  const ColumnSum sum{.x = k.b, .y = k.column_sum};
  if (k.column_sum && !launches(listed, "column_sum_kernel"))
    passes.push_back({"BGRADA's kernel", Part::column_sums, cost(sum), true});
  else if (k.column_sum)
    for (Pass& round : column_sum_passes(sum)) passes.push_back(std::move(round));
  return passes;
}

std::string label(const ColumnSum& k, const ParameterNames& names) {
  return concat(names.find(k.y.data), ": sums of columns");
}
Passes passes_of(const ColumnSum& k, const Listed&) { return column_sum_passes(k); }

std::string label(const CausalAttentionForward&, const ParameterNames&) { return "attention"; }
Passes passes_of(const CausalAttentionForward& k, const Listed&) {
  return {{"forward_kernel", Part::attention, cost(k)}};
}

std::string label(const CausalAttentionBackward&, const ParameterNames&) { return "attention's gradient"; }
/// Both kernels compute the scores and the gradients of weights: seven products instead of five. Each reads
/// all of qkv and dy.
Passes passes_of(const CausalAttentionBackward& k, const Listed& listed) {
  const double product = attention_product_flops(k.y, k.log_sum_exp);
  const double dots = bytes_of_views(k.log_sum_exp);
  const double inputs = bytes_of_views(k.qkv) + bytes_of_views(k.dy, k.log_sum_exp) + dots;
  // With sums a block writes the sums of its head's columns: one part for queries, two for keys.
  const double of_block = k.dqkv_sum ? bytes_of_views(k.dqkv_sum) / static_cast<double>(k.heads.packed()) : 0;
  const double query_sums = of_block * static_cast<double>(blocks_of(listed, 0));
  const double key_sums = 2 * of_block * static_cast<double>(blocks_of(listed, 1));
  Passes passes{{"query_gradient_kernel",
                 Part::attention,
                 {.bytes = inputs + bytes_of_views(k.y, k.dqkv.q) + query_sums, .flops = 3 * product}},
                {"key_gradient_kernel",
                 Part::attention,
                 {.bytes = inputs + bytes_of_views(k.dqkv.k, k.dqkv.v) + key_sums, .flops = 4 * product}}};
  if (k.dqkv_sum)
    passes.push_back(
        {"add_sums_kernel", Part::attention, {.bytes = query_sums + key_sums + bytes_of_views(k.dqkv_sum)}});
  return passes;
}

std::string label(const LayerNormForward& k, const ParameterNames& names) {
  return names.find(k.weight.data);
}
Passes passes_of(const LayerNormForward& k, const Listed&) {
  return {{"forward_kernel", Part::layer_norm, cost(k)}};
}

std::string label(const LayerNormBackward& k, const ParameterNames& names) {
  return names.find(k.weight.data) + "'s gradient";
}
Passes passes_of(const LayerNormBackward& k, const Listed& listed) {
  const double partials = (k.dx_sum ? 12.0 : 8.0) * static_cast<double>(blocks_of(listed, 0)) *
                          static_cast<double>(k.x.shape[-1]);
  const double sums = bytes_of_views(k.dweight, k.dbias, k.dx_sum);
  return {{"backward_kernel", Part::layer_norm, {.bytes = cost(k).bytes - sums + partials}},
          {"add_partials_kernel", Part::layer_norm, {.bytes = partials + sums}}};
}

std::string label(const CrossEntropy&, const ParameterNames&) { return "cross entropy and its gradient"; }
Passes passes_of(const CrossEntropy& k, const Listed&) {
  return {{"row_kernel", Part::cross_entropy, cost(k)}};
}

std::string label(const InverseCount&, const ParameterNames&) { return "number of targets"; }
Passes passes_of(const InverseCount& k, const Listed&) {
  return {{"inverse_count_kernel", Part::cross_entropy, cost(k)}};
}

std::string label(const EmbeddingForward& k, const ParameterNames& names) { return names.find(k.table.data); }
Passes passes_of(const EmbeddingForward& k, const Listed&) {
  return {{"forward_kernel", Part::embedding, cost(k)}};
}

std::string label(const EmbeddingBackward& k, const ParameterNames& names) {
  return names.find(k.dtable.data) + "'s gradient";
}
/// Sorts entries of 8 bytes by 8 bits per round. Sums of rows that occur more than 64 times depend on the
/// data and are not counted.
Passes passes_of(const EmbeddingBackward& k, const Listed& listed) {
  const auto tokens = static_cast<double>(k.ids.size()), rows = static_cast<double>(k.dtable.shape[0]);
  const double counts = 4.0 * 256 * static_cast<double>(blocks_of(listed, 0)), entries = 8 * tokens;
  const int bits = std::bit_width(static_cast<uint64_t>(k.dtable.shape[0]));
  Passes passes;
  for (int round = 0; round < (bits + 7) / 8; ++round) {
    const double read = round == 0 ? bytes_of_views(k.ids) : entries;
    passes.push_back({"count_kernel", Part::embedding, {.bytes = read + counts}});
    passes.push_back({"scan_kernel", Part::embedding, {.bytes = 2 * counts}});
    passes.push_back({"scatter_kernel", Part::embedding, {.bytes = read + counts + entries}});
  }
  passes.push_back({"find_runs_kernel", Part::embedding, {.bytes = entries + 4 * rows}});
  passes.push_back({"pieces_kernel", Part::embedding, {.bytes = 0}});
  const double updated =
      k.adds ? std::min(tokens, rows) / rows * bytes_of_views(k.dtable, k.dtable) : bytes_of_views(k.dtable);
  passes.push_back(
      {"rows_kernel", Part::embedding, {.bytes = entries + 4 * rows + bytes_of_views(k.dy) + updated}});
  return passes;
}

std::string label(const AddPositions& k, const ParameterNames& names) { return names.find(k.table.data); }
Passes passes_of(const AddPositions& k, const Listed&) {
  return {{"add_positions_kernel", Part::embedding, cost(k)}};
}

std::string label(const AddPositionsBackward& k, const ParameterNames& names) {
  return names.find(k.dtable.data) + "'s gradient";
}
Passes passes_of(const AddPositionsBackward& k, const Listed&) {
  return {{"add_positions_backward_kernel", Part::embedding, cost(k)}};
}

std::string label(const Sum&, const ParameterNames&) { return "sum of losses"; }
Passes passes_of(const Sum& k, const Listed&) {
  const double partials = 8.0 * static_cast<double>((k.x.size() + sum_block - 1) / sum_block);
  return {{"sum_kernel", Part::rest, {.bytes = bytes_of_views(k.x) + partials}},
          {"final_kernel", Part::rest, {.bytes = partials + bytes_of_views(k.y)}}};
}

std::string label(const Multiply&, const ParameterNames&) { return "mean loss"; }
Passes passes_of(const Multiply& k, const Listed&) { return {{"map_kernel", Part::rest, cost(k)}}; }

std::string label(const Scale&, const ParameterNames&) { return "share of the loss"; }
Passes passes_of(const Scale& k, const Listed&) { return {{"map_kernel", Part::rest, cost(k)}}; }

std::string label(const Fill&, const ParameterNames&) { return "gradient of the loss"; }
Passes passes_of(const Fill& k, const Listed&) { return {{"map_kernel", Part::rest, cost(k)}}; }

std::string label(const Copy&, const ParameterNames&) { return "copy"; }
/// The driver makes copies, so no kernel is listed.
Passes passes_of(const Copy&, const Listed&) { return {}; }

std::string label(const SetStep&, const ParameterNames&) { return "number of the step"; }
Passes passes_of(const SetStep& k, const Listed&) { return {{"set_step_kernel", Part::rest, cost(k)}}; }

std::string label(const SetValues&, const ParameterNames&) { return "learning rate"; }
Passes passes_of(const SetValues& k, const Listed&) { return {{"set_values_kernel", Part::rest, cost(k)}}; }

std::string label(const BlockSquares&, const ParameterNames&) { return "squares of gradients"; }
Passes passes_of(const BlockSquares& k, const Listed&) {
  return {{"square_kernel", Part::optimizer, cost(k)}};
}

std::string label(const ClipFactor&, const ParameterNames&) { return "norm of gradients"; }
Passes passes_of(const ClipFactor& k, const Listed&) { return {{"clip_kernel", Part::optimizer, cost(k)}}; }

std::string label(const AdamWStep&, const ParameterNames&) { return "AdamW"; }
Passes passes_of(const AdamWStep& k, const Listed&) { return {{"adamw_kernel", Part::optimizer, cost(k)}}; }

template <class... Contracts>
struct Contracts_ {
  static std::optional<Call> find(const std::type_info& type, const void* kernel,
                                  const ParameterNames& names) {
    std::optional<Call> call;
    const auto take = [&]<class K>(const K& contract) {
      call = Call{label(contract, names),
                  [contract](const Listed& listed) { return passes_of(contract, listed); }};
    };
    ((type == typeid(Contracts) ? take(*static_cast<const Contracts*>(kernel)) : void()), ...);
    return call;
  }
};
using Known = Contracts_<MatMul, ColumnSum, CausalAttentionForward, CausalAttentionBackward, LayerNormForward,
                         LayerNormBackward, CrossEntropy, InverseCount, EmbeddingForward, EmbeddingBackward,
                         AddPositions, AddPositionsBackward, Sum, Multiply, Scale, Fill, Copy, SetStep,
                         SetValues, BlockSquares, ClipFactor, AdamWStep>;

/// Returns "attn.c_attn" for "transformer.h.3.attn.c_attn.weight".
std::string short_name(std::string name) {
  if (name.starts_with("transformer.")) name = name.substr(12);
  if (name.starts_with("h.")) name = name.substr(name.find('.', 2) + 1);
  return name.substr(0, name.rfind('.'));
}

}  // namespace

const char* name(Part part) {
  static constexpr const char* names[parts] = {"products",    "attention", "cross entropy", "layer norm",
                                               "column sums", "embedding", "optimizer",     "rest"};
  return names[static_cast<size_t>(part)];
}

ParameterNames::ParameterNames(ParameterSpace& space, const Tensor& gradients) {
  const auto offset = [](const Tensor& flat, int64_t element) {
    return static_cast<const std::byte*>(flat.view().data) + element * bytes(flat.dtype());
  };
  for (const Parameter& parameter : space.layout.parameters()) {
    const std::string name = short_name(parameter.name);
    names_[offset(space.values().memory(), parameter.place.begin)] = name;
    names_[offset(space.copies().memory(), parameter.place.begin)] = name;
    names_[offset(gradients, parameter.place.begin)] = name;
  }
}

std::string ParameterNames::find(const void* address) const {
  const auto found = names_.find(address);
  return found == names_.end() ? "" : found->second;
}

Call call_of(const std::type_info& type, const void* kernel, const ParameterNames& names) {
  std::optional<Call> call = Known::find(type, kernel, names);
  expect(call.has_value(), "the contract ", type.name(),
         " runs in a step but has no figures: add its passes to tests/step/passes.cpp");
  return *std::move(call);
}

}  // namespace lockstep
