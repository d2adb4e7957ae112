// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/kernels/random.h"
#include "lockstep/nn/initial_values.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

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
/// neither copied nor moved because the parts of a model refer to it.
///
///     class Gated : public Module {
///      public:
///       Tensor operator()(const Tensor& x) const { return value_(x) * sigmoid(gate_(x)); }
///
///      private:
///       Linear& value_ = add_part<Linear>("value", 20, 32);
///       Linear& gate_ = add_part<Linear>("gate", 20, 32);
///     };
class Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Returns all parameters with dotted names ("transformer.h.0.ln_1.weight"), depth first. Throws UserError
  /// naming a part that was destroyed.
  std::vector<NamedTensor> parameters(const std::string& prefix = "") const;
  /// A temporary cannot be a part.
  void add_part(const std::string& name, const Module&& temporary) = delete;

 protected:
  /// Makes a trainable leaf of fp32 (or f64) and adds it. Its values are computed at first use.
  Tensor add_parameter(const std::string& name, const Shape& shape, const InitialValues& values,
                       DType dtype = DType::f32);
  /// Makes a part, adds it and returns it. This module owns it.
  template <std::derived_from<Module> Part, class... Arguments>
  Part& add_part(const std::string& name, Arguments&&... arguments) {
    auto part = std::make_unique<Part>(std::forward<Arguments>(arguments)...);
    Part& made = *part;
    made_.push_back(std::move(part));
    add_part(name, made);
    return made;
  }
  /// Adds a part. It must be a member or owned by a member.
  void add_part(const std::string& name, const Module& part);

 private:
  /// The lists of a module. The module that it is a part of shares them, so they outlive a destroyed part.
  struct Contents {
    bool is_destroyed = false;
    std::vector<NamedTensor> parameters = {};
    std::vector<std::pair<std::string, std::shared_ptr<const Contents>>> parts = {};

    void list(const std::string& prefix, std::vector<NamedTensor>& all) const;
  };

  std::shared_ptr<Contents> contents_ = std::make_shared<Contents>();
  std::vector<std::unique_ptr<Module>> made_;  ///< the parts that this module owns
};

/// Returns the number of elements of all parameters. Each tensor counts once.
int64_t count_parameters(const std::vector<NamedTensor>& parameters);

}  // namespace lockstep
