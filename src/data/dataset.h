// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "core/shape.h"
#include "data/tokens.h"

namespace lockstep {

/// Shape and dtype of the inputs or the targets of one sample.
struct SampleField {
  Shape shape;
  DType dtype;

  int64_t bytes() const { return shape.elements() * lockstep::bytes(dtype); }
};

/// Numbered samples, each a pure function of its index: any rank may ask for any sample at any time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual SampleField input() const = 0;
  virtual SampleField target() const = 0;
  /// Writes one sample into memory for its fields. Safe from several threads. Throws Error for an index
  /// outside.
  virtual void fetch(int64_t index, void* input, void* target) const = 0;
  /// What a sample counts in a mean over samples: its targets that are not ignored, or 1 where all samples
  /// have as many.
  virtual int64_t weight(int64_t /*index*/) const { return 1; }
  /// As fetch(), for training: a data set may cut what it has into other samples in every epoch.
  virtual void fetch_in_epoch(int64_t /*epoch*/, int64_t index, void* input, void* target) const {
    fetch(index, input, target);
  }
};

/// Windows of a token sequence for next-token prediction: a sample is t[s, s + block) with the targets
/// t[s + 1, s + block + 1). Side by side (fetch) sample i has s = i * block, and a tail too short for a
/// window is left out. For training (fetch_in_epoch) it has s = i * block + d, with d in [0, block) drawn by
/// Philox from (seed, epoch, i): an epoch shows as many tokens as there are, evenly, at ever other places.
class TokenWindows : public Dataset {
 public:
  /// Throws Error if not one window fits.
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

/// A training part and a validation part.
struct TokenSplit {
  std::shared_ptr<const TokenWindows> train;
  std::shared_ptr<const TokenWindows> validation;
};

/// The first floor(train_split * n) tokens train, the others validate; no window reaches over the border.
/// Throws UserError (data.train_split, data.block_size) if a part has no window.
TokenSplit split_tokens(const Tokens& tokens, int64_t block_size, double train_split, uint64_t seed = 0);

/// Uniform random tokens: sample i is block_size + 1 tokens drawn by Philox from (seed, i), held nowhere.
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
  int32_t token(int64_t index, int64_t position) const;

  Options options_;
};

/// The tutorials' data: features [features] and one target [1] a sample, all uniform in [0, 1) by Philox from
/// (seed, index), so the same on every rank.
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
