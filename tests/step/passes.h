// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "lockstep/kernels/cost.h"
#include "lockstep/parameters/parameter_space.h"

namespace lockstep {

/// The row group of the table that a launch belongs to. It also decides the rate of its operations.
enum class Part { products, attention, cross_entropy, layer_norm, column_sums, embedding, optimizer, rest };
inline constexpr int parts = 8;
const char* name(Part part);

/// A launch that a call of a contract makes.
struct Pass {
  std::string kernel;  ///< part of the kernel's name, or "product"
  Part part = Part::rest;
  Cost cost = {};
  bool is_of_library = false;  ///< launched by cuBLASLt itself, so the emulator does not list it
};

/// A kernel that was listed below a call, in the order of launches.
struct ListedKernel {
  std::string name;      ///< "product" for cuBLASLt's
  uint64_t blocks = 0;   ///< thread blocks, which determine the size of partial sums
  Cost of_product = {};  ///< of the call of cuBLASLt, from its own descriptors
};

/// A call of a contract: its text for readers, and the passes that the CUDA backend makes for it.
struct Call {
  std::string label;
  std::function<std::vector<Pass>(const std::vector<ListedKernel>& listed)> passes;
};

/// Finds the names of parameters by the addresses of their values, copies and gradients.
class ParameterNames {
 public:
  ParameterNames(ParameterSpace& space, const Tensor& gradients);
  /// Returns "attn.c_attn" for any of h.0.attn.c_attn.weight ... h.11.attn.c_attn.weight, or "".
  std::string find(const void* address) const;

 private:
  std::map<const void*, std::string> names_;
};

/// Returns the call of a contract. Throws Error for one that has no figures here.
Call call_of(const std::type_info& type, const void* kernel, const ParameterNames& names);

}  // namespace lockstep
