// SPDX-License-Identifier: Apache-2.0
// Changes what the kernels of a program compute, as another build or a broken processor would. It is linked
// into copies of train_gpt and replay. LOCKSTEP_TEST_PLANT names the change, and @STEP after it the only step
// that has it.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <typeinfo>
#include <utility>

#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/fold.h"
#include "lockstep/kernels/kernel.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep {
namespace {

/// The change of this process.
class Plant {
 public:
  explicit Plant(const std::string& text) : name_(text.substr(0, text.find('@'))) {
    if (const size_t at = text.find('@'); at != std::string::npos) step_ = std::stoll(text.substr(at + 1));
  }

  void operator()(const std::type_info& type, const void* kernel) {
    if (type == typeid(AdamWStep)) change_update(*static_cast<const AdamWStep*>(kernel));
    if (step_ != 0 && step_ != steps_ + 1) return;
    if (name_ == "layer_norm" && type == typeid(LayerNormForward))
      changeable<LayerNormForward>(kernel).epsilon = 1.0009765625e-5;
    if (type == typeid(MatMul)) change_product(changeable<MatMul>(kernel));
    if (name_ == "sum" && type == typeid(Fold)) changeable<Fold>(kernel).scale *= 1.0000001f;
    if (name_ == "sample" && type == typeid(EmbeddingForward)) swap_samples(kernel);
  }

 private:
  /// The kernel is a temporary object of its caller, which is not const.
  template <class K>
  static K& changeable(const void* kernel) {
    return *const_cast<K*>(static_cast<const K*>(kernel));
  }

  void change_product(MatMul& product) {
    const bool is_backward = product.activation == Activation::gelu_tanh_backward;
    const bool is_planted = name_ == "product" || (name_ == "gradient" && product.transpose_a) ||
                            (name_ == "backward" && is_backward);
    if (is_planted) product.scale *= 1.0 + 0x1p-20;
  }

  void change_update(const AdamWStep& update) {
    ++steps_;
    if (name_ == "epsilon") changeable<AdamWStep>(&update).epsilon = 2e-8;
    if (name_ == "beta2") changeable<AdamWStep>(&update).beta2 += 1e-6;
    if (step_ != steps_) return;
    if (name_ == "weight") *static_cast<uint32_t*>(update.slices[0].parameter.data) ^= 1U << 10;
    if (name_ == "moment") *static_cast<uint32_t*>(update.slices[0].second_moment.data) ^= 1U << 20;
  }

  static void swap_samples(const void* kernel) {
    const View& ids = static_cast<const EmbeddingForward*>(kernel)->ids;
    const int64_t columns = ids.size() / ids.shape[0];
    auto* const first = static_cast<int32_t*>(ids.data);
    for (int64_t i = 0; i < columns; ++i) std::swap(first[i], first[i + columns]);
  }

  std::string name_;
  int64_t step_ = 0;   ///< the only step to change; 0: all
  int64_t steps_ = 0;  ///< updates so far
};

const bool is_planted = [] {
  const char* const text = std::getenv("LOCKSTEP_TEST_PLANT");
  if (text == nullptr) return false;
  launch_observer() = [plant = Plant(text)](const std::type_info& type, const void* kernel) mutable {
    plant(type, kernel);
  };
  return true;
}();

}  // namespace
}  // namespace lockstep
