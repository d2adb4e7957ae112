// SPDX-License-Identifier: Apache-2.0
#include "case_sizes.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct ModelSize {
  int64_t batch = 0, time = 0, heads = 0, width = 0, vocabulary = 0, parameters = 0;
};

/// Adds the Linear layers of one block: packed queries, keys and values; attention output; MLP up; MLP down.
void add_layers(CaseSizes& sizes, int64_t rows, int64_t width) {
  sizes.layers.push_back({rows, width, 3 * width});
  sizes.layers.push_back({rows, width, width});
  sizes.layers.push_back({rows, width, 4 * width});
  sizes.layers.push_back({rows, 4 * width, width});
}

/// Adds the shapes of all kernels in one training step of the model.
void add_model(CaseSizes& sizes, const ModelSize& model) {
  const int64_t rows = model.batch * model.time;
  add_layers(sizes, rows, model.width);
  sizes.layers.push_back({rows, model.width, model.vocabulary});
  const ActivationSize activations{model.batch, model.time, model.width, model.vocabulary};
  sizes.mlps.push_back(activations);
  sizes.activations.push_back(activations);
  sizes.attentions.push_back({model.batch, model.time, model.heads, model.width / model.heads});
  sizes.logits.push_back({rows, model.vocabulary});
  if (model.parameters > 0) sizes.parameters.push_back(model.parameters);
}

}  // namespace

std::string text_of(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += concat(text.empty() ? "" : "x", extent);
  return text;
}

CaseSizes cpu_sizes() {
  CaseSizes sizes;
  for (const int64_t rows : {192, 512, 2048})
    for (const int64_t width : {128, 384}) {
      add_layers(sizes, rows, width);
      sizes.mlps.push_back({1, rows, width, 0});
    }
  add_layers(sizes, 512, 768);
  sizes.attentions = {{3, 64, 4, 32}, {2, 256, 6, 64}, {1, 1024, 12, 64}};
  // The last size does not fit into the caches.
  sizes.activations = {{3, 64, 128, 65}, {2, 256, 384, 65}, {2, 1024, 768, 50257}, {16, 1024, 768, 65}};
  sizes.llamas = {{512, 6, 2, 64, 1024}, {2048, 16, 8, 128, 6144}};
  sizes.logits = {{192, 65}, {512, 65}, {256, 50257}};
  sizes.parameters = {804'096, 10'745'088};
  return sizes;
}

CaseSizes gpu_sizes(DType dtype) {
  CaseSizes sizes{.dtype = dtype};
  add_model(sizes, {64, 1024, 12, 768, 50304, 124'475'904});
  add_model(sizes, {32, 1024, 12, 768, 50304, 0});
  add_model(sizes, {64, 256, 6, 384, 65, 10'745'088});
  for (const int64_t time : {2048, 4096, 8192}) sizes.attentions.push_back({65536 / time, time, 12, 64});
  for (const int64_t time : {1024, 2048, 4096}) sizes.attentions.push_back({32768 / time, time, 16, 128});
  sizes.llamas = {{8192, 32, 8, 64, 8192}, {8192, 32, 8, 128, 14336}};
  return sizes;
}

CaseSizes quick_sizes(DType dtype) {
  CaseSizes sizes{.dtype = dtype};
  add_model(sizes, {2, 32, 2, 64, 72, 5000});
  sizes.llamas = {{64, 4, 2, 16, 96}};
  return sizes;
}

}  // namespace lockstep
