// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "nn/initial_values.h"
#include "tensor/tensor.h"

namespace lockstep {

struct KeyValueCache;

/// What a forward pass is told besides its inputs. Random draws are keyed on it, so it names the step and the
/// samples, never a rank.
struct Context {
  bool training = false;  ///< dropout is on
  uint64_t seed = 0;      ///< of the run
  uint32_t step = 0;      ///< iterations since the start of the run
  uint32_t sample = 0;    ///< index in the global batch of the first sample of the inputs
  /// Where kernels on a GPU read the step instead, if not null: a recorded step is replayed with another
  /// number.
  const uint32_t* device_step = nullptr;
  /// Attention goes on behind what this holds, if not null.
  KeyValueCache* cache = nullptr;
  /// What a loss is to put into its gradient, if not empty: GradScaler::scale().
  Tensor loss_scale = {};

  RandomKey key(uint32_t site) const {
    return {.seed = seed, .step = step, .sample = sample, .site = site, .device_step = device_step};
  }
};

/// A part of a model: parameters and parts of its own, in the order in which they were added. Neither copied
/// nor moved, because the parts of a model are its members.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// All parameters with dotted names ("transformer.h.0.ln_1.weight"), depth first.
  std::vector<NamedTensor> parameters(const std::string& prefix = "") const;

 protected:
  /// A new fp32 (or f64) leaf, declared: its values are made at first use.
  Tensor add_parameter(const std::string& name, const Shape& shape, DType dtype = DType::f32,
                       const InitialValues& values = constant_values(0.0));
  /// A part, which must be a member or owned by one.
  void add_part(const std::string& name, const Module& part);

 private:
  std::vector<NamedTensor> own_;
  std::vector<std::pair<std::string, const Module*>> parts_;
};

/// Number of elements of all parameters, each tensor once.
int64_t count_parameters(const std::vector<NamedTensor>& parameters);

}  // namespace lockstep
