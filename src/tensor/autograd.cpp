// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/autograd.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/operation_observer.h"
#include "lockstep/tensor/tensor_state.h"

namespace lockstep {
namespace {

thread_local bool recording = true;

std::atomic<uint64_t> next_sequence{0};

using Nodes = std::vector<std::shared_ptr<GradientNode>>;

/// Returns the operations below `root` whose sequence is at least `since`, newest last. Returns none if
/// `root` is null or older.
Nodes operations_below(const std::shared_ptr<GradientNode>& root, uint64_t since) {
  Nodes nodes;
  std::unordered_set<GradientNode*> seen;
  const auto visit = [&](const std::shared_ptr<GradientNode>& node) {
    if (node && node->sequence >= since && seen.insert(node.get()).second) nodes.push_back(node);
  };
  visit(root);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (size_t input = 0; input < nodes[i]->inputs.size(); ++input)
      if (nodes[i]->inputs[input]) visit(nodes[i]->inputs[input]->node);
  std::sort(nodes.begin(), nodes.end(),
            [](const auto& a, const auto& b) { return a->sequence < b->sequence; });
  return nodes;
}

/// Returns the leaves and older results that `nodes` have read. `nodes` are recorded since `since`. Each
/// tensor is listed once. Those of the newest operation come first.
std::vector<std::shared_ptr<TensorState>> inputs_from_elsewhere(const Nodes& nodes, uint64_t since) {
  std::vector<std::shared_ptr<TensorState>> inputs;
  std::unordered_set<TensorState*> seen;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
    for (const auto& input : (*node)->inputs)
      if (input && (input->leaf || (input->node && input->node->sequence < since)) &&
          seen.insert(input.get()).second)
        inputs.push_back(input);
  return inputs;
}

/// Returns whether the tensor has exactly `handles` handles and its storage has one owner.
bool is_sole_owner(const Tensor& tensor, int64_t handles = 1) {
  const auto& state = Tape::state(tensor);
  return state.use_count() == handles && state->storage.use_count() == 1;
}

/// Returns a + b. It is computed in place if one of them has no other owner.
Tensor add_gradients(Tensor a, Tensor b) {
  Tensor sum = is_sole_owner(a) ? a : is_sole_owner(b) ? b : empty_like(a);
  launch(a.stream(), Add{.a = a.view(), .b = b.view(), .y = sum.view()});
  return sum;
}

}  // namespace

/// One backward(): the operations that are still to run and the state of the leaves. The maps are only looked
/// up and never iterated. So their order cannot change results.
class detail::Walk {
 public:
  /// `seed` is the gradient of `root` if the host knows it. `scale` is the loss scale that `root` may
  /// contain.
  Walk(const std::shared_ptr<GradientNode>& root, Tensor gradient, std::optional<double> seed,
       const Tensor& scale)
      : root_(root.get()),
        seed_(seed),
        scale_(scale),
        space_(std::exchange(TrainedSpace::current(), nullptr)),
        has_space_(space_ != nullptr) {
    root->output_gradient = std::move(gradient);
    add(operations_below(root, 0));
  }

  void run() {
    while (!nodes_.empty()) {
      const std::shared_ptr<GradientNode> node = std::move(nodes_.back());
      nodes_.pop_back();
      run(*node);
    }
  }

 private:
  friend class lockstep::GradientContext;

  /// Adds operations that run before all that are still to run.
  void add(const Nodes& nodes) {
    for (const auto& node : nodes) {
      expect_scaled_once(*node);
      for (auto& input : node->inputs) {
        if (!input || !input->leaf) continue;
        // Another DataParallel trains the leaves of another space. Here they are constants.
        const bool is_foreign = space_ && input->space && input->space.get() != space_;
        if (!is_foreign) ++uses_left_[input.get()], note(*input, node->op);
        if (is_foreign) input = nullptr;
      }
    }
    expect_no_stranger();
    nodes_.insert(nodes_.end(), nodes.begin(), nodes.end());
  }

  /// Remembers a leaf that no space holds, and the operation that reads it.
  void note(const TensorState& leaf, const char* op) {
    has_space_ |= leaf.space != nullptr;
    if (!leaf.space && (space_ || leaf.declared) && !stranger_) stranger_ = {&leaf, op};
  }

  void expect_no_stranger() const {
    if (!stranger_ || !has_space_) return;
    const auto& [leaf, op] = *stranger_;
    const std::string name = leaf->declared ? "the parameter " + leaf->declared->name : "a leaf";
    throw UserError(concat(
        "the loss reads ", name, " ", leaf->shape, " by the operation ", op,
        ", and no ParameterSpace holds it, so no step would train it: ",
        leaf->declared ? "add its module by add_part()" : "make it by add_parameter()",
        ", or, if it is not to be trained, call set_requires_grad(false) or compute with it under NoGrad"));
  }

  void expect_scaled_once(const GradientNode& node) const {
    const bool is_expected = &node == root_ && scale_ && scale_.view().data == node.loss_scale.view().data;
    expect(!node.loss_scale || is_expected, "the gradient of the loss ", node.op,
           " contains a loss scale already: call GradScaler::backward(loss, factor) with that scale on "
           "this loss itself, or compute it without loss_scale");
  }

  void run(GradientNode& node) {
    expect(node.gradient != nullptr, "the gradient of ", node.op,
           " was already computed and its memory freed");
    GradientContext context(*this, node);
    const uint64_t since = Tape::now();
    Tensor dy = std::exchange(node.output_gradient, {});
    Gradients gradients = [&] {
      const OperationScope operation(node.op, "the gradient of ");
      return node.gradient(dy, context);
    }();
    if (context.again_) return replace(node, context.again_, since, std::move(dy));
    dy = {};
    expect(gradients.size() == node.inputs.size(), node.op, " has ", node.inputs.size(),
           " inputs and returned ", gradients.size(), " gradients");
    for (size_t i = 0; i < gradients.size(); ++i)
      if (node.inputs[i]) hand_back(node, i, std::move(gradients[i]));
    node.clear();
  }

  /// Replaces the node by the operations below `y`. Its gradient function has recorded them since `since`.
  /// They take over its uses of leaves. So a leaf is ready after its last use inside or outside of them.
  void replace(GradientNode& node, const Tensor& y, uint64_t since, Tensor dy) {
    const std::shared_ptr<GradientNode>& root = Tape::state(y)->node;
    const Nodes nodes = operations_below(root, since);
    std::erase_if(node.inputs, [](const auto& input) { return !input->wants_gradient(); });  // frozen since
    expect(y.shape() == dy.shape() && inputs_from_elsewhere(nodes, since) == node.inputs, node.op,
           ": recomputing its function read other tensors than the forward");
    add(nodes);
    for (const auto& input : node.inputs)
      if (input->leaf) --uses_left_[input.get()];
    if (root) root->output_gradient = std::move(dy);
    if (root && root->bias_input) root->column_sum = node.column_sum;
    if (&node == root_) root_ = root.get();
    node.clear();
  }

  void hand_back(const GradientNode& node, size_t i, Tensor gradient) {
    TensorState* const input = node.inputs[i].get();
    expect(static_cast<bool>(gradient), node.op, " returned no gradient for input ", i);
    expect(gradient.shape() == input->shape, node.op, ": gradient ", i, " is ", gradient.shape(),
           ", its input is ", input->shape);
    if (OperationObserver* const observer = OperationObserver::current())
      observer->differentiated(node.op, gradient, i, node.input_ids());
    if (input->leaf) {
      if (input->space) input->space->gradients_are_scaled = static_cast<bool>(scale_);
      receive(input, std::move(gradient));
      if (--uses_left_[input] == 0 && input->leaf->ready) input->leaf->ready();
    } else if (input->node) {  // a leaf may have been frozen since the forward
      Tensor& sum = input->node->output_gradient;
      if (sum) drop_column_sum(*input->node);
      sum = sum ? add_gradients(std::exchange(sum, {}), std::move(gradient)) : std::move(gradient);
    }
  }

  /// Forgets column sums that are not those of the node's whole gradient. They may be in the leaf's memory.
  void drop_column_sum(GradientNode& node) {
    if (!node.column_sum) return;
    TensorState* const bias = node.inputs[*node.bias_input].get();
    if (bias->leaf->buffer && bias->leaf->buffer.id() == node.column_sum.id()) used_.erase(bias);
    node.column_sum = {};
  }

  /// Returns whether the uses of an accumulating leaf in this backward() are summed first and then added. The
  /// result is the same as adding the gradient of a separate backward().
  bool is_summed_apart(TensorState* input) {
    return input->leaf->accumulate && (uses_left_[input] > 1 || apart_.contains(input));
  }

  void receive(TensorState* input, Tensor gradient) {
    LeafGradient& leaf = *input->leaf;
    if (is_summed_apart(input)) {
      Tensor& sum = apart_[input];
      if (!sum)
        sum = std::move(gradient);
      else if (sum.id() != gradient.id())
        sum = add_gradients(std::exchange(sum, {}), std::move(gradient));
      if (uses_left_[input] > 1) return;
      gradient = std::exchange(sum, {});
    }
    if (leaf.begin) leaf.begin();
    const bool is_first = used_.insert(input).second;
    const bool overwrites = !leaf.buffer || (is_first && !leaf.accumulate);
    leaf.is_written = true;
    if (leaf.buffer && leaf.buffer.id() == gradient.id()) return;  // written in place
    if (!leaf.buffer) leaf.buffer = empty_like(gradient);
    const View target = leaf.buffer.view();
    if (overwrites)
      launch(gradient.stream(), Copy{.x = gradient.view(), .y = target});
    else
      launch(gradient.stream(), Add{.a = target, .b = gradient.view(), .y = target});
  }

  Nodes nodes_;                                      ///< still to run; the last one is next
  std::unordered_map<TensorState*, int> uses_left_;  ///< remaining uses of each leaf
  std::unordered_set<TensorState*> used_;            ///< leaves whose gradient is written or is about to be
  std::unordered_map<TensorState*, Tensor> apart_;   ///< sums over the uses of accumulating leaves
  const GradientNode* root_;
  std::optional<double> seed_;
  Tensor scale_;
  const ParameterMemory* space_;  ///< of the scope; a backward() within a gradient function has none
  bool has_space_;                ///< a leaf on the tape is in a space
  std::optional<std::pair<const TensorState*, const char*>> stranger_ = {};
};

const ParameterMemory*& TrainedSpace::current() {
  thread_local const ParameterMemory* space = nullptr;
  return space;
}

bool GradientContext::wants(size_t i) const { return node_.inputs[i] != nullptr; }

GradientTarget GradientContext::gradient_target(size_t i, const Tensor& model) {
  TensorState* input = node_.inputs[i].get();
  LeafGradient* leaf = input ? input->leaf.get() : nullptr;
  const auto is_like_model = [&](const Tensor& memory) {
    return memory && memory.dtype() == model.dtype() && memory.shape() == model.shape();
  };
  if (leaf && walk_.is_summed_apart(input)) {
    const Tensor sum = walk_.apart_[input];
    return is_like_model(sum) && is_sole_owner(sum, 2) ? GradientTarget{sum, sum}
                                                       : GradientTarget{empty_like(model), {}};
  }
  if (leaf && leaf->begin) leaf->begin();
  if (!leaf || !is_like_model(leaf->buffer)) return {empty_like(model), {}};
  // The leaf is marked as used now. So a second input that is the same leaf gets its own memory or adds.
  const bool overwrites = walk_.used_.insert(input).second && !leaf->accumulate;
  return {leaf->buffer, overwrites ? Tensor() : leaf->buffer};
}

Tensor GradientContext::gradient_memory(size_t i, const Tensor& model) {
  TensorState* input = node_.inputs[i].get();
  const bool is_written = input && input->leaf && (input->leaf->accumulate || walk_.used_.contains(input));
  return is_written ? empty_like(model) : gradient_target(i, model).memory;
}

Tensor GradientContext::take_gradient(size_t i) {
  const auto& input = node_.inputs[i];
  if (!input || !input->node) return {};
  walk_.drop_column_sum(*input->node);
  return std::exchange(input->node->output_gradient, {});
}

Tensor GradientContext::take_own_gradient(size_t i, const Shape& shape, const Tensor& dy) {
  const Tensor taken = take_gradient(i);
  if (!taken) return full(shape, 0.0, dy.dtype(), dy.stream());
  if (is_sole_owner(taken)) return taken;
  const Tensor own = empty_like(taken);
  copy(taken, own);
  return own;
}

Tensor GradientContext::column_sum_memory(size_t i) {
  const auto& input = node_.inputs[i];
  GradientNode* maker = input ? input->node.get() : nullptr;
  if (!maker || !maker->bias_input || maker->output_gradient) return {};
  const auto& bias = maker->inputs[*maker->bias_input];
  if (!bias || !bias->leaf || bias->dtype != DType::f32) return {};
  // begin() would bind the memory of a unit whose turn comes later.
  const bool is_in_place = bias->leaf->buffer && !bias->leaf->begin;
  return maker->column_sum =
             is_in_place
                 ? GradientContext(walk_, *maker).gradient_memory(*maker->bias_input, bias->leaf->buffer)
                 : empty(bias->shape, bias->dtype, bias->stream);
}

Tensor GradientContext::column_sum() const { return node_.column_sum; }

std::optional<double> GradientContext::starting_gradient() const {
  return &node_ == walk_.root_ ? walk_.seed_ : std::nullopt;
}

Tensor record(const char* op, const Tensor& y, std::vector<Tensor> inputs, GradientFunction gradient) {
  observe_result(op, y, inputs);
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

Tensor record(const char* op, const Tensor& y, std::vector<Tensor> inputs,
              std::function<Gradients(const Tensor& dy)> gradient) {
  return record(
      op, y, std::move(inputs),
      [gradient = std::move(gradient)](const Tensor& dy, GradientContext&) { return gradient(dy); });
}

void set_loss_scale(const Tensor& loss, const Tensor& scale) {
  if (const auto& node = Tape::state(loss)->node) node->loss_scale = scale;
}

void set_bias_input(const Tensor& y, size_t i) {
  if (const auto& node = Tape::state(y)->node) node->bias_input = i;
}

uint64_t Tape::now() { return next_sequence.load(std::memory_order_relaxed); }

std::vector<Tensor> Tape::read_since(const Tensor& y, uint64_t since) {
  std::vector<Tensor> tensors;
  for (const auto& input : inputs_from_elsewhere(operations_below(state(y)->node, since), since))
    tensors.emplace_back().state_ = input;
  return tensors;
}

Tensor Tape::bias_of(const Tensor& y) {
  Tensor bias;
  if (const auto& node = state(y)->node; node && node->bias_input)
    bias.state_ = node->inputs[*node->bias_input];
  return bias;
}

bool is_recorded(const std::vector<Tensor>& inputs) {
  return recording &&
         std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return x.requires_grad(); });
}

namespace {

void walk(const Tensor& y, Tensor gradient, std::optional<double> seed, const Tensor& scale = {}) {
  const std::shared_ptr<GradientNode> root = Tape::state(y)->node;
  expect(
      root != nullptr,
      "this loss is not on the tape: nothing in it requires a gradient, or backward() has already run on it");
  const NoGrad no_grad;
  Walk(root, std::move(gradient), seed, scale).run();
}

}  // namespace

void backward(const Tensor& loss, double seed) {
  expect(loss && loss.size() == 1, "backward() starts from a scalar");
  walk(loss, full(loss.shape(), seed, loss.dtype(), loss.stream()), seed);
}

void backward(const Tensor& loss, double seed, const Tensor& scale) {
  expect(loss && loss.size() == 1 && loss.dtype() == DType::f32,
         "a scaled backward() starts from an f32 scalar: convert() a 16-bit loss first");
  const auto& root = Tape::state(loss)->node;
  if (root && root->loss_scale)
    return walk(loss, full(loss.shape(), seed, loss.dtype(), loss.stream()), seed, scale);
  const Tensor dy = empty(loss.shape(), DType::f32, loss.stream());
  const View x{scale.view().data, loss.shape(), DType::f32};
  launch(loss.stream(), Scale{.x = x, .y = dy.view(), .factor = seed});
  walk(loss, dy, std::nullopt, scale);
}

void backward(const Tensor& y, const Tensor& dy) {
  expect(y && dy && dy.shape() == y.shape() && dy.dtype() == y.dtype(),
         "backward() from a tensor needs a gradient of its shape and dtype");
  walk(y, dy, std::nullopt);
}

Recording::Recording(bool on) : before_(std::exchange(recording, on)) {}
Recording::~Recording() { recording = before_; }

}  // namespace lockstep
