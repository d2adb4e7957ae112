// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"
#include "lockstep/data/bytes.h"

namespace lockstep {

/// Shape and dtype of the inputs or the targets of one sample.
struct SampleField {
  Shape shape;
  DType dtype;

  int64_t bytes() const { return shape.elements() * lockstep::bytes(dtype); }
};

/// Numbered samples. Each is a pure function of its index. So any rank may read any sample at any time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual SampleField input() const = 0;
  virtual SampleField target() const = 0;
  /// Writes one sample into memory for its fields. Several threads may call it at once. Throws Error for an
  /// index outside the data set.
  virtual void fetch(int64_t index, void* input, void* target) const = 0;
  /// Returns how many targets of a sample count in a loss, in any epoch. Empty for every sample if all have
  /// equally many. Each rank calls it for the samples of all replicas, so it must not read them.
  virtual std::optional<int64_t> counted_targets(int64_t /*index*/) const { return std::nullopt; }
  /// Writes one sample for training as fetch() does. A data set may cut its data into other samples in every
  /// epoch.
  virtual void fetch_in_epoch(int64_t /*epoch*/, int64_t index, void* input, void* target) const {
    fetch(index, input, target);
  }
};

/// Windows of a token sequence for next-token prediction: a sample is t[s, s + block), and its targets are
/// t[s + 1, s + block + 1). In fetch() the windows are adjacent: sample i has s = i * block. A tail too short
/// for a window is skipped. For training (fetch_in_epoch) s is i * block + d, or the last possible start if
/// that is less. Philox draws d in [0, block) from (seed, epoch, i). So each epoch shows the same number of
/// tokens evenly in windows at other positions.
class TokenWindows : public Dataset {
 public:
  /// Throws Error if no window fits.
  TokenWindows(Tokens tokens, int64_t block_size, uint64_t seed = 0);

  int64_t size() const override;
  SampleField input() const override { return {{block_size_}, DType::i32}; }
  SampleField target() const override { return {{block_size_}, DType::i32}; }
  void fetch(int64_t index, void* input, void* target) const override;
  void fetch_in_epoch(int64_t epoch, int64_t index, void* input, void* target) const override;

 private:
  void copy_window(int64_t begin, void* input, void* target) const;

  Tokens tokens_;
  int64_t block_size_;
  uint64_t seed_;
};

/// A training part and a validation part, which is null if data.train_split is 1.
template <class Samples>
struct Split {
  std::shared_ptr<const Samples> train;
  std::shared_ptr<const Samples> validation;
};

/// Returns windows of the first floor(train_split * n) tokens for training and of the others for validation.
/// No window crosses the border. Throws UserError (data.train_split, data.block_size) if a part has no
/// window.
Split<TokenWindows> split_tokens(const Tokens& tokens, int64_t block_size, double train_split,
                                 uint64_t seed = 0);

/// Uniform random tokens. Sample i is block_size + 1 tokens drawn by Philox from (seed, i). They are not
/// stored.
class RandomTokens : public Dataset {
 public:
  struct Options {
    int64_t samples = 0;
    int64_t vocabulary_size = 0;
    int64_t block_size = 0;
    uint64_t seed = 0;
  };

  explicit RandomTokens(const Options& options);

  int64_t size() const override { return options_.samples; }
  SampleField input() const override { return {{options_.block_size}, DType::i32}; }
  SampleField target() const override { return {{options_.block_size}, DType::i32}; }
  void fetch(int64_t index, void* input, void* target) const override;

 private:
  Options options_;
};

/// The tutorials' data: features [features] and one target [1] per sample. All are uniform in [0, 1) by
/// Philox from (seed, index). So they are the same on every rank.
class SyntheticRegression : public Dataset {
 public:
  explicit SyntheticRegression(int64_t samples = 2048, int64_t features = 20, uint64_t seed = 0);

  int64_t size() const override { return samples_; }
  SampleField input() const override { return {{features_}, DType::f32}; }
  SampleField target() const override { return {{1}, DType::f32}; }
  void fetch(int64_t index, void* input, void* target) const override;

 private:
  int64_t samples_;
  int64_t features_;
  std::vector<float> values_;  ///< [samples, features + 1], the target last
};

}  // namespace lockstep
