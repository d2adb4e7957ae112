// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/world.h"
#include "config/config.h"
#include "huggingface/gpt2_config.h"
#include "huggingface/model_folder.h"
#include "parameters/placed_tensors.h"
#include "snapshot/snapshot.h"

namespace lockstep {

/// In a snapshot's artifacts: SourceModel::hash() of what its run began with.
inline constexpr const char* source_artifact = "model.from";

/// A model to begin with: that of a Hugging Face folder (a path, s3:// or https:// address), or of a
/// snapshot, a folder of snapshots or a run of this program, of any format. Every rank has one, and all call
/// it alike; rank 0 reads, but for snapshots that each can read.
class SourceModel {
 public:
  /// Reads what stands before tensors. Throws UserError that names the file and the place in it.
  SourceModel(const std::string& address, const World& world);
  /// The one that a run began with, as a snapshot of the run (on rank 0) tells of it: nothing is read at the
  /// address, which may be gone or have changed, unless values are loaded after all.
  SourceModel(const std::string& address, std::optional<StoredSnapshot> of_run, const World& world);

  const std::string& address() const { return address_; }
  const Gpt2Config& config() const { return config_; }
  bool has_bias() const { return has_bias_; }
  /// Whether its vocabulary is what a folder says, of which a text may use a part, and not what a text had.
  bool has_own_vocabulary() const { return has_own_vocabulary_; }
  bool is_snapshot() const { return snapshot_.has_value(); }
  /// Whether a snapshot of the run that began with it tells of it.
  bool is_of_run() const { return is_of_run_; }
  /// What the rows of the table of tokens are made a multiple of in memory, unless somebody says.
  int64_t vocabulary_multiple() const { return vocabulary_multiple_; }
  /// Tells it from others.
  const std::string& hash() const { return hash_; }
  /// Files that belong to it besides tensors and config.json, as they lie there (tokenizer.json), on rank 0.
  std::map<std::string, std::string> texts() const;
  /// The artifacts of a snapshot; empty for a Hugging Face folder.
  std::map<std::string, std::string> artifacts() const;

  /// Brings the values to where ranks keep them: `tensors` are a GPT's, of any number of rows of tokens, and
  /// those beyond the vocabulary become zero. All get the UserError that names what is damaged.
  void load(const World& world, PlacedTensors& tensors) const;

 private:
  void open_snapshot(const World& world);
  void read_snapshot_sizes(int64_t rows, int64_t padding);
  void load_from_address(const World& world, PlacedTensors& tensors) const;

  std::string address_;
  std::unique_ptr<ModelFolder> folder_;     ///< on rank 0, if it is one
  std::optional<StoredSnapshot> snapshot_;  ///< on all ranks, if it is one
  Gpt2Config config_;
  bool is_of_run_ = false;
  bool has_bias_ = true;
  bool has_own_vocabulary_ = true;
  int64_t vocabulary_multiple_ = 64;
  std::string hash_;
};

}  // namespace lockstep
