// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/models/family.h"
#include "lockstep/models/llama/hugging_face.h"
#include "lockstep/models/llama/llama_options.h"

namespace lockstep {

/// A family of models with Llama's structure. A derived class knows the kind of model that options describe.
class LlamaFamily : public Family {
 public:
  ModelOptions ordinary() const override;
  std::vector<SizeKey> own_sizes(const ModelOptions& options) const override;
  KeyRows<ModelOptions> rows() const override;
  void check(const ModelOptions& options) const override;
  int64_t head_size(const ModelOptions& options) const override;
  std::unique_ptr<LanguageModel> make(const ModelOptions& options, const Recompute& recompute,
                                      uint64_t seed) const override;

  ModelDescription read_config(const std::string& json, const std::string& origin) const override;
  std::string config_json(const ModelDescription& model, DType dtype) const override;
  std::map<std::string, Shape> stored_tensors(const ModelDescription& model) const override;
  std::string stored_name(const std::string& name) const override { return llama_stored_name(name); }
  bool is_ignored(const std::string& name, const ModelDescription& model) const override {
    return is_rotary_buffer(name, model.options.n_layer);
  }
  Head head(const ModelDescription& model) const override;

 protected:
  virtual KeyRows<LlamaOptions> own_rows() const;
  virtual LlamaKind kind(const ModelOptions& options) const = 0;

 private:
  Llama::Options sizes_of(const ModelOptions& options, const Recompute& recompute = {}) const;
};

}  // namespace lockstep
