// SPDX-License-Identifier: Apache-2.0
#include "nn/text_model.h"

#include <utility>

#include "tensor/create.h"

namespace lockstep {
namespace {

class CachedModel final : public TextModel {
 public:
  explicit CachedModel(const LanguageModel& model) : model_(model) {}

  int64_t context() const override { return model_.context_length(); }
  void start(int64_t texts, int64_t tokens) override { cache_ = {.texts = texts, .capacity = tokens}; }
  Tensor next_logits(std::span<const NextTokens> parts) override { return model_.next_logits(parts, cache_); }

 private:
  const LanguageModel& model_;
  KeyValueCache cache_;
};

class UncachedModel final : public TextModel {
 public:
  UncachedModel(LogitsFunction model, int64_t context) : model_(std::move(model)), context_(context) {}

  int64_t context() const override { return context_; }
  void start(int64_t texts, int64_t /*tokens*/) override { texts_.assign(static_cast<size_t>(texts), {}); }

  Tensor next_logits(std::span<const NextTokens> parts) override {
    const NoGrad no_grad;
    Tensor logits;
    for (size_t i = 0; i < parts.size(); ++i) {
      std::vector<int32_t>& ids = texts_[static_cast<size_t>(parts[i].text)];
      ids.resize(static_cast<size_t>(parts[i].past));
      ids.insert(ids.end(), parts[i].ids.begin(), parts[i].ids.end());
      const Tensor all = model_(from_values(ids, {1, static_cast<int64_t>(ids.size())}));
      const int64_t rows = all.shape().rows(), columns = all.shape()[-1];
      const auto row = static_cast<int64_t>(i);
      if (!logits) logits = empty({static_cast<int64_t>(parts.size()), columns}, all.dtype(), all.stream());
      copy(all.reshape({rows, columns}).slice(rows - 1, rows), logits.slice(row, row + 1));
    }
    return logits;
  }

 private:
  LogitsFunction model_;
  int64_t context_;
  std::vector<std::vector<int32_t>> texts_;
};

}  // namespace

std::unique_ptr<TextModel> make_text_model(const LanguageModel& model) {
  return std::make_unique<CachedModel>(model);
}

std::unique_ptr<TextModel> make_text_model(LogitsFunction model, int64_t context) {
  return std::make_unique<UncachedModel>(std::move(model), context);
}

}  // namespace lockstep
