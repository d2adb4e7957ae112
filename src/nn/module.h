// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/random.h"
#include "tensor/tensor.h"

namespace lockstep {

// Initial values of parameters. All are functions of the seed and of a parameter's position in the list. So
// every rank computes the same values for any part of a parameter.

/// Returns initial values that are all `value`.
InitialValues constant_values(double value);
/// Returns N(mean, std^2). Element i is the one that fill_normal() draws.
InitialValues normal_values(double mean, double std, uint64_t seed, uint32_t stream_id);
/// Returns normal_values() with mean 0 of a matrix [columns, rows], transposed to [rows, columns]: `shape`.
InitialValues transposed_normal_values(const Shape& shape, double std, uint64_t seed, uint32_t stream_id);
/// Returns U(low, high). Element i is the one that fill_uniform() draws.
InitialValues uniform_values(double low, double high, uint64_t seed, uint32_t stream_id);

/// Initializes parameters as PyTorch's Linear: U(-1/sqrt(inputs), 1/sqrt(inputs)). A bias follows its weight.
void initialize_linears(const std::vector<NamedTensor>& parameters, uint64_t seed);

struct KeyValueCache;

/// Settings of a forward pass besides its inputs. It keys random draws: by step and samples, never by rank.
struct Context {
  bool training = false;  ///< dropout is on
  uint64_t seed = 0;      ///< seed of the run
  uint32_t step = 0;      ///< iterations since the start of the run
  uint32_t sample = 0;    ///< index in the global batch of the first sample of the inputs
  /// Where kernels on a GPU read the step, if not null. So a recorded step can be replayed as another.
  const uint32_t* device_step = nullptr;
  /// Attention continues the texts in this cache if it is not null.
  KeyValueCache* cache = nullptr;
  /// Attention rotates queries and keys by this rotary_table() of the inputs' tokens if it is not empty.
  Tensor angles = {};
  /// A loss multiplies its gradient by this scale (GradScaler::scale()) if it is not empty.
  Tensor loss_scale = {};
  /// A loss is the sum over its targets times this number, or the mean over them if it is empty.
  Tensor inverse_count = {};

  RandomKey key(uint32_t site) const {
    return {.seed = seed, .step = step, .sample = sample, .site = site, .device_step = device_step};
  }
};

/// A part of a model: parameters and parts of its own in the order in which they were added. A module is
/// neither copied nor moved because the parts of a model are its members.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Returns all parameters with dotted names ("transformer.h.0.ln_1.weight"), depth first.
  std::vector<NamedTensor> parameters(const std::string& prefix = "") const;

 protected:
  /// Adds and returns a new fp32 (or f64) leaf. It is declared: its values are computed at first use.
  Tensor add_parameter(const std::string& name, const Shape& shape, DType dtype = DType::f32,
                       const InitialValues& values = constant_values(0.0));
  /// Adds a part. It must be a member or owned by a member.
  void add_part(const std::string& name, const Module& part) { parts_.emplace_back(name, &part); }

 private:
  std::vector<NamedTensor> own_;
  std::vector<std::pair<std::string, const Module*>> parts_;
};

/// Returns the number of elements of all parameters. Each tensor counts once.
int64_t count_parameters(const std::vector<NamedTensor>& parameters);

}  // namespace lockstep
