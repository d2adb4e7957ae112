// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/core/dtype.h"
#include "lockstep/huggingface/model_folder.h"
#include "lockstep/models/family.h"
#include "lockstep/nn/language_model.h"
#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// The artifact of a snapshot with the SourceModel::hash() of the model that its run began with.
inline constexpr const char* source_artifact = "model.from";

/// A model that a run begins with. Its address is a Hugging Face folder (path, s3:// or https://), a
/// snapshot, a folder of snapshots, or a run of this program. All ranks must make the same calls. Rank 0
/// reads the files.
class SourceModel {
 public:
  /// Reads the configuration and headers but no tensors. Throws UserError with the file and the place in it.
  SourceModel(const std::string& address, const World& world);
  /// The model that a run began with, as a snapshot of the run (given on rank 0) describes it. Only load()
  /// reads the address, so the files there may be gone or changed.
  SourceModel(const std::string& address, std::optional<StoredSnapshot> of_run, const World& world);

  const std::string& address() const { return address_; }
  const ModelDescription& description() const { return model_; }
  /// Returns true if a folder defines the vocabulary, so a text can use a part of it. Returns false if the
  /// vocabulary is that of the training text.
  bool has_own_vocabulary() const { return has_own_vocabulary_; }
  bool is_snapshot() const { return snapshot_.has_value(); }
  /// Returns whether a snapshot of the run that began with this model describes it.
  bool is_of_run() const { return is_of_run_; }
  /// Returns a hash that identifies the model.
  const std::string& hash() const { return hash_; }
  /// Returns the model's other text files as they are stored, such as tokenizer.json. For rank 0 only.
  std::map<std::string, std::string> texts() const;
  /// Returns the artifacts of a snapshot, or none for a Hugging Face folder.
  std::map<std::string, std::string> artifacts() const;

  /// Loads the values into each rank's part of `tensors`, which are a language model's. The embedding can
  /// have any number of rows. Rows beyond the vocabulary become zero. Every rank throws UserError for a
  /// damaged file.
  void load(const World& world, PlacedTensors& tensors) const;

 private:
  void open_snapshot(const World& world);

  std::string address_;
  std::unique_ptr<ModelFolder> folder_;     ///< on rank 0, for a Hugging Face folder
  std::optional<StoredSnapshot> snapshot_;  ///< on all ranks, for a snapshot
  ModelDescription model_;
  bool is_of_run_ = false;
  bool has_own_vocabulary_ = true;
  std::string hash_;
};

/// Loads the whole model on each rank, to compute in this precision. All ranks call it. Throws UserError that
/// names a damaged file.
std::unique_ptr<LanguageModel> load_model(const SourceModel& source, const World& world = World::alone(),
                                          DType precision = DType::f32);
/// Returns the tokenizer next to a model or in its snapshot, or null if the source has none. For rank 0 only.
std::shared_ptr<const Tokenizer> tokenizer_of(const SourceModel& source);

}  // namespace lockstep
