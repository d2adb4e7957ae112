// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"
#include "lockstep/models/model_options.h"
#include "lockstep/nn/language_model.h"

namespace lockstep {

class Family;
template <class Options>
class KeyRows;

/// A model as the files of a folder describe it.
struct ModelDescription {
  const Family* family = nullptr;
  ModelOptions options = {};  ///< all sizes are given: n_positions and vocab_size, too
  TokenIds ids = {};
};

/// A key that memory grows with, its value, and its value in an ordinary model.
struct SizeKey {
  std::string key;
  int64_t value = 0;
  int64_t ordinary = 1;
};

/// A family of language models, such as GPT-2. A folder src/models/x defines one: a function x_family()
/// returns it. Nothing else knows the family.
class Family {
 public:
  virtual ~Family() = default;

  /// Returns the value of model.family.
  virtual std::string name() const = 0;
  /// Returns the name in messages: "GPT-2".
  virtual std::string title() const = 0;
  virtual std::vector<ModelPreset> presets() const { return {}; }
  /// Returns the sizes of an ordinary model. Memory plans blame the size that exceeds its ordinary value
  /// most.
  virtual ModelOptions ordinary() const = 0;
  /// Returns the family's own keys that memory grows with. A key with the value 0 is never blamed.
  virtual std::vector<SizeKey> own_sizes(const ModelOptions& /*options*/) const { return {}; }
  /// Returns the rows of the options that not all families have. ModelOptions::own holds them. Related
  /// families may share rows.
  virtual KeyRows<ModelOptions> rows() const = 0;
  /// Throws UserError that names the keys if sizes do not fit together.
  virtual void check(const ModelOptions& options) const;
  /// Returns the channels of an attention head.
  virtual int64_t head_size(const ModelOptions& options) const { return options.n_embd / options.n_head; }
  /// Returns a model with the values of this seed. `options` gives all sizes: those of a ModelDescription.
  virtual std::unique_ptr<LanguageModel> make(const ModelOptions& options, const Recompute& recompute,
                                              uint64_t seed) const = 0;

  // A family without files of Hugging Face defines head() alone.

  /// Returns the model_type of each config.json of Hugging Face that describes a model of the family.
  virtual std::vector<std::string> model_types() const { return {}; }
  /// Reads a config.json from an untrusted source. Throws UserError that names `origin` and the field if the
  /// file is damaged or describes a model that is not supported.
  virtual ModelDescription read_config(const std::string& json, const std::string& origin) const;
  /// Returns the config.json of a model whose file has tensors of this dtype.
  virtual std::string config_json(const ModelDescription& model, DType dtype) const;
  /// Returns the shapes of the tensors in a folder by their names there, without an optional prefix.
  virtual std::map<std::string, Shape> stored_tensors(const ModelDescription& /*model*/) const { return {}; }
  /// Returns the name in stored_tensors() of a tensor in a folder, or of a parameter.
  virtual std::string stored_name(const std::string& name) const { return name; }
  /// Returns whether a tensor in a folder is no parameter. Throws UserError for one that cannot be there.
  virtual bool is_ignored(const std::string& /*name*/, const ModelDescription& /*model*/) const {
    return false;
  }

  /// The names of the parameters of the token table and of the head, and whether they are one tensor.
  struct Head {
    std::string table = {};
    std::string head = {};
    bool is_tied = false;
  };
  virtual Head head(const ModelDescription& model) const = 0;
};

/// Returns the families of all folders, in alphabetical order.
const std::vector<const Family*>& families();

/// Returns the family of these options.
const Family& family_of(const ModelOptions& options);

/// Returns whether only other families have a key, such as "model.bias" next to the family "llama".
bool is_of_other_family(const std::string& key, const std::string& family);

/// Throws UserError if a key of another family has another value than its initial one.
void require_keys_of_family(const ModelOptions& options);

/// Returns the options of a model with `vocabulary` tokens and a context of `block_size` tokens in training.
ModelOptions sized(const ModelOptions& options, int64_t vocabulary, int64_t block_size);

/// Returns the padded number of rows of the token table.
int64_t table_rows(const ModelOptions& options);

/// Reads a config.json of any family. Throws UserError as Family::read_config() does.
ModelDescription read_model_config(const std::string& json, const std::string& origin);

/// The limit of a config.json.
inline constexpr size_t most_config_bytes = size_t{16} << 20;

/// Returns the generation_config.json of a model with these ids.
std::string generation_config_json(const TokenIds& ids);

}  // namespace lockstep
