// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/matmul_plans.h"

#include <atomic>
#include <charconv>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "lockstep/core/cuda_check.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/cuda/matmul_product.cuh"

namespace lockstep {
namespace cuda {
namespace {

struct Table {
  std::mutex mutex;
  std::map<MatMulKey, MatMulPlan> plans;
  std::set<MatMulKey> used;  ///< since the last import
  std::atomic<uint64_t> generation{1};
  std::atomic<bool> is_tuning{false};
};

Table& table() {
  static Table instance;
  return instance;
}

constexpr std::array<const char*, epilogue_count> epilogue_names = {
    "none", "bias", "gelu", "gelu_bias", "gelu_aux", "gelu_aux_bias", "dgelu", "column_sum"};
constexpr std::array<const char*, 5> activation_names = {"none", "gelu_tanh", "gelu_erf",
                                                         "gelu_tanh_backward", "gelu_erf_backward"};

std::string with_words(const MatMulPlan& plan) {
  std::string text = describe(plan) + " words=";
  for (const uint64_t word : plan.algorithm.words) text += hexadecimal(word, 16);
  return text;
}

/// A line of name=value pairs.
class Line {
 public:
  explicit Line(const std::string& text) : text_(text) {
    std::istringstream in(text);
    for (std::string pair; in >> pair;) {
      const size_t equals = pair.find('=');
      if (equals != std::string::npos) values_[pair.substr(0, equals)] = pair.substr(equals + 1);
    }
  }

  const std::string& word(const char* name) const {
    const auto found = values_.find(name);
    require(found != values_.end(), "a plan for a product has no '", name, "': ", text_);
    return found->second;
  }
  uint64_t number(const char* name) const { return parse(word(name), 10); }
  bool flag(const char* name) const { return number(name) != 0; }
  template <class Names>
  size_t one_of(const char* name, const Names& names) const {
    for (size_t i = 0; i < names.size(); ++i)
      if (word(name) == names[i]) return i;
    throw UserError(concat("a plan for a product has an unknown ", name, ": ", text_));
  }
  uint64_t parse(std::string_view digits, int base) const {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    require(error == std::errc() && end == digits.data() + digits.size(), "a plan for a product has '",
            digits, "' instead of a number: ", text_);
    return value;
  }

 private:
  std::string text_;
  std::map<std::string, std::string> values_;
};

MatMulKey key_from(const Line& line) {
  static constexpr std::array<const char*, 5> dtypes = {"f32", "f64", "bf16", "f16", "i32"};
  const std::string& transpose = line.word("transpose");
  return {.m = static_cast<int64_t>(line.number("m")),
          .n = static_cast<int64_t>(line.number("n")),
          .k = static_cast<int64_t>(line.number("k")),
          .dtype = static_cast<DType>(line.one_of("dtype", dtypes)),
          .c_dtype = static_cast<DType>(line.one_of("c", dtypes)),
          .transpose_a = transpose == "10" || transpose == "11",
          .transpose_b = transpose == "01" || transpose == "11",
          .bias = line.flag("bias"),
          .pre_activation = line.flag("pre_activation"),
          .residual = line.flag("residual"),
          .column_sum = line.flag("column_sum"),
          .activation = static_cast<Activation>(line.one_of("activation", activation_names))};
}

MatMulPlan plan_from(const Line& line) {
  MatMulPlan plan{.epilogue = static_cast<Epilogue>(line.one_of("epilogue", epilogue_names)),
                  .algorithm = {.words = {}, .workspace_bytes = line.number("workspace")}};
  const std::string& digits = line.word("words");
  require(digits.size() == plan.algorithm.words.size() * 16, "a plan for a product ends early");
  for (size_t i = 0; i < plan.algorithm.words.size(); ++i)
    plan.algorithm.words[i] = line.parse(std::string_view(digits).substr(i * 16, 16), 16);
  return plan;
}

}  // namespace

std::string to_text(const MatMulKey& key) {
  return concat("m=", key.m, " n=", key.n, " k=", key.k, " dtype=", key.dtype, " c=", key.c_dtype,
                " transpose=", key.transpose_a, key.transpose_b, " bias=", key.bias,
                " pre_activation=", key.pre_activation, " residual=", key.residual,
                " column_sum=", key.column_sum,
                " activation=", activation_names[static_cast<size_t>(key.activation)]);
}

std::string describe(const MatMulPlan& plan) {
  std::string text = concat("epilogue=", name(plan.epilogue));
  const auto attributes = attributes_of(plan.algorithm);
  for (size_t i = 0; i < attributes.size(); ++i)
    text += concat(" ", algorithm_attributes[i].name, "=", attributes[i] ? concat(*attributes[i]) : "?");
  return concat(text, " workspace=", plan.algorithm.workspace_bytes);
}

const char* name(Epilogue epilogue) { return epilogue_names[static_cast<size_t>(epilogue)]; }

std::optional<MatMulPlan> find_plan(const MatMulKey& key) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().plans.find(key);
  if (found == table().plans.end()) return std::nullopt;
  table().used.insert(key);
  return found->second;
}

MatMulPlan keep_plan(const MatMulKey& key, const MatMulPlan& plan) {
  const std::lock_guard lock(table().mutex);
  table().used.insert(key);
  return table().plans.emplace(key, plan).first->second;
}

void forget_plan(const MatMulKey& key) {
  const std::lock_guard lock(table().mutex);
  table().plans.erase(key);
}

uint64_t plans_generation() { return table().generation.load(std::memory_order_acquire); }
bool is_matmul_tuning() { return table().is_tuning.load(); }

}  // namespace cuda

void set_matmul_tuning(bool on) { cuda::table().is_tuning = on; }

std::string place_of_matmul_plans() {
  int device = 0;
  cuda::check(cudaGetDevice(&device), "asking for the current GPU");
  return concat("plans for ", describe_gpu(device), ", cuBLASLt ", cublasLtGetVersion());
}

std::string export_matmul_plans(bool used_only) {
  const std::lock_guard lock(cuda::table().mutex);
  std::string lines;
  for (const auto& [key, plan] : cuda::table().plans)
    if (!used_only || cuda::table().used.contains(key))
      lines += cuda::to_text(key) + " : " + cuda::with_words(plan) + "\n";
  return lines.empty() ? lines : place_of_matmul_plans() + "\n" + lines;
}

void import_matmul_plans(const std::string& text) {
  std::map<cuda::MatMulKey, cuda::MatMulPlan> plans;
  if (!text.empty()) {
    std::istringstream in(text);
    std::string place;
    std::getline(in, place);
    const std::string here = place_of_matmul_plans();
    require(place == here, "the matmul plans of this run were made for another GPU or cuBLASLt: they are \"",
            place, "\", but this machine needs \"", here,
            "\". To keep the bits, resume the run on such a GPU; otherwise ",
            advice_about(foreign_plans, "import other plans"));
    for (std::string row; std::getline(in, row);) {
      const cuda::Line line(row);
      plans[cuda::key_from(line)] = cuda::plan_from(line);
    }
  }
  const std::lock_guard lock(cuda::table().mutex);
  cuda::table().plans = std::move(plans);
  cuda::table().used.clear();
  cuda::table().generation.fetch_add(1, std::memory_order_release);
}

}  // namespace lockstep
