// SPDX-License-Identifier: Apache-2.0
#include "tensor/autograd.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kernels/elementwise.h"
#include "tensor/create.h"
#include "tensor/tensor_state.h"

namespace lockstep {
namespace {

thread_local bool recording = true;

/// The operation whose gradient function runs on this thread.
struct Running {
  GradientNode* node = nullptr;
  std::unordered_set<TensorState*>* used = nullptr;  ///< leaves that have their gradient, or are about to
  std::optional<double> seed;
};
thread_local Running running;
std::atomic<uint64_t> next_sequence{0};

/// The operations below a loss and how often each leaf is used. The maps are only looked up, never walked, so
/// their order cannot show.
struct Reachable {
  std::vector<std::shared_ptr<GradientNode>> nodes;
  std::unordered_map<TensorState*, int> leaf_uses;

  explicit Reachable(const std::shared_ptr<GradientNode>& root) {
    std::unordered_set<GradientNode*> seen{root.get()};
    nodes.push_back(root);
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const auto& input : nodes[i]->inputs) {
        if (!input) continue;
        if (input->leaf) ++leaf_uses[input.get()];
        if (input->node && seen.insert(input->node.get()).second) nodes.push_back(input->node);
      }
    }
    std::sort(nodes.begin(), nodes.end(),
              [](const auto& a, const auto& b) { return a->sequence > b->sequence; });
  }
};

bool is_sole_owner(const Tensor& tensor) {
  const auto& state = Tape::state(tensor);
  return state.use_count() == 1 && state->storage.use_count() == 1;
}

/// a + b, into whichever of the two nobody else can see.
Tensor add_gradients(Tensor a, Tensor b) {
  Tensor sum = is_sole_owner(a) ? a : is_sole_owner(b) ? b : empty_like(a);
  launch(a.stream(), Add{.a = a.view(), .b = b.view(), .y = sum.view()});
  return sum;
}

void receive(LeafGradient& leaf, const Tensor& gradient, bool first_use) {
  leaf.is_written = true;
  if (leaf.buffer && leaf.buffer.id() == gradient.id()) return;  // written in place
  const bool overwrite = !leaf.buffer || (first_use && !leaf.accumulate);
  if (!leaf.buffer) leaf.buffer = empty_like(gradient);
  const View target = leaf.buffer.view();
  if (overwrite)
    launch(gradient.stream(), Copy{.x = gradient.view(), .y = target});
  else
    launch(gradient.stream(), Add{.a = target, .b = gradient.view(), .y = target});
}

}  // namespace

Tensor record(const char* op, const Tensor& y, std::vector<Tensor> inputs, GradientFunction gradient) {
  if (!is_recorded(inputs)) return y;
  auto node = std::make_shared<GradientNode>();
  node->op = op;
  node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  node->gradient = std::move(gradient);
  for (const Tensor& input : inputs)
    node->inputs.push_back(input.requires_grad() ? Tape::state(input) : nullptr);
  Tape::state(y)->node = std::move(node);
  return y;
}

Tensor gradient_memory(size_t i, const Tensor& model) {
  TensorState* input = running.node->inputs[i].get();
  LeafGradient* leaf = input ? input->leaf.get() : nullptr;
  const bool is_direct = leaf && leaf->buffer && !leaf->accumulate && leaf->buffer.dtype() == model.dtype() &&
                         leaf->buffer.shape() == model.shape();
  // Marked as used at once, so that a second input that is the same leaf gets memory of its own.
  return is_direct && running.used->insert(input).second ? leaf->buffer : empty_like(model);
}

Tensor take_gradient(size_t i) {
  const auto& input = running.node->inputs[i];
  return input && input->node ? std::exchange(input->node->output_gradient, {}) : Tensor();
}

std::optional<double> starting_gradient() { return running.seed; }

bool is_recorded(const std::vector<Tensor>& inputs) {
  return recording &&
         std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return x.requires_grad(); });
}

LeafGradient& leaf_gradient(const Tensor& leaf) {
  expect(Tape::state(leaf) != nullptr && Tape::state(leaf)->leaf != nullptr,
         "the tensor is not a leaf that requires a gradient");
  return *Tape::state(leaf)->leaf;
}

void backward(const Tensor& loss, double seed) {
  expect(loss && loss.size() == 1, "backward() starts from a scalar");
  const std::shared_ptr<GradientNode> root = Tape::state(loss)->node;
  expect(root != nullptr,
         "this loss is not on the tape: nothing in it requires a gradient, or it was walked before");
  const NoGrad no_grad;
  Reachable reachable(root);
  std::unordered_set<TensorState*> used;
  root->output_gradient = full(loss.shape(), seed, loss.dtype(), loss.stream());

  for (auto& node : reachable.nodes) {
    expect(node->gradient != nullptr, "the gradient of ", node->op,
           " was already walked and its memory freed");
    running = {node.get(), &used, node == root ? std::optional(seed) : std::nullopt};
    Gradients gradients = node->gradient(std::exchange(node->output_gradient, {}));
    running = {};
    expect(gradients.size() == node->inputs.size(), node->op, " has ", node->inputs.size(),
           " inputs and returned ", gradients.size(), " gradients");
    for (size_t i = 0; i < gradients.size(); ++i) {
      const std::shared_ptr<TensorState>& input = node->inputs[i];
      if (!input) continue;
      expect(static_cast<bool>(gradients[i]), node->op, " returned no gradient for input ", i);
      if (gradients[i].shape() != input->shape)
        throw Error(concat(node->op, ": gradient ", i, " is ", gradients[i].shape(), ", its input is ",
                           input->shape));
      if (input->leaf) {
        receive(*input->leaf, gradients[i], used.insert(input.get()).second);
        if (--reachable.leaf_uses[input.get()] == 0 && input->leaf->ready) input->leaf->ready();
      } else if (input->node) {  // a leaf may have been frozen since the forward
        Tensor& sum = input->node->output_gradient;
        sum = sum ? add_gradients(std::exchange(sum, {}), std::move(gradients[i])) : std::move(gradients[i]);
      }
    }
    node->gradient = nullptr;
    node->inputs.clear();
    node.reset();
  }
}

NoGrad::NoGrad() : before_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = before_; }

}  // namespace lockstep
