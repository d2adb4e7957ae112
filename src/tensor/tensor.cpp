// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/tensor.h"

#include <new>
#include <utility>
#include <vector>

#include "lockstep/core/text.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/tensor_state.h"

namespace lockstep {

Tensor::Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, Shape shape, DType dtype)
    : state_(std::make_shared<TensorState>()) {
  const int64_t end = offset_bytes + shape.elements() * bytes(dtype);
  expect(storage != nullptr && offset_bytes >= 0 && end <= storage->bytes, "a tensor ", shape, " of ", dtype,
         " at byte ", offset_bytes, " does not fit its storage of ", storage ? storage->bytes : 0, " bytes");
  state_->stream = storage->stream;
  state_->storage = std::move(storage);
  state_->offset_bytes = offset_bytes;
  state_->shape = shape;
  state_->dtype = dtype;
}

/// Returns values of which every element is known. Without a seed they have the seed 0 and the place of the
/// next parameter that this thread makes, as PyTorch's values without manual_seed().
static InitialValues resolved(const InitialValues& values, const std::optional<DeclaredLeaf::Seed>& seed) {
  thread_local uint32_t next_place = 0;
  if (!values.with_seed) return values;
  InitialValues with = seed ? values.with_seed(seed->seed, seed->place) : values.with_seed(0, next_place++);
  with.with_seed = values.with_seed;
  return with;
}

Tensor Tensor::declare(const Shape& shape, DType dtype, const Stream& stream, const InitialValues& values,
                       const std::string& name) {
  expect(values.fill || values.with_seed, "the parameter ", name, " ", shape,
         " has no initial values: pass constant_values(1.0), normal_values(0.0, 0.02) or others");
  Tensor tensor;
  tensor.state_ = std::make_shared<TensorState>();
  tensor.state_->storage = std::make_shared<Storage>(Storage{nullptr, 0, stream});
  tensor.state_->shape = shape;
  tensor.state_->dtype = dtype;
  tensor.state_->stream = stream;
  tensor.state_->declared =
      std::make_unique<DeclaredLeaf>(DeclaredLeaf{.name = name, .with_seed = values.with_seed});
  tensor.state_->may_be_zero = values.are_zero;
  tensor.state_->initial = std::make_unique<InitialValues>(resolved(values, {}));
  return tensor;
}

void Tensor::initialize(const InitialValues& given) const {
  expect(state_ != nullptr && !state_->node, "only a leaf has initial values");
  const auto& declared = state_->declared;
  const InitialValues values = resolved(given, declared ? declared->of_space : std::nullopt);
  state_->may_be_zero = values.are_zero;
  if (declared) {
    declared->with_seed = values.with_seed;
    declared->has_own_seed = false;
  }
  if (state_->initial) return void(*state_->initial = values);
  expect(state_->storage->data != nullptr,
         "this rank keeps only a part of the parameter: initialize it before "
         "DataParallel shards it");
  values.fill(part(0, {size()}), 0);
}

void Tensor::initialize_with_seed(uint64_t seed, uint32_t place) const {
  if (!state_ || !state_->declared || !state_->declared->with_seed) return;
  const auto with_seed = state_->declared->with_seed;
  initialize(with_seed(seed, place));
  state_->declared->with_seed = with_seed;  // another seed may follow
  state_->declared->has_own_seed = true;
}

/// Frees the operations below without recursion, because a tape may have a million. A freed node frees the
/// tensors that it has read, also those in its gradient function. These add their nodes to a list.
TensorState::~TensorState() {
  thread_local std::vector<std::shared_ptr<GradientNode>>* list = nullptr;
  if (!node) return;
  if (list) {
    try {
      list->push_back(std::move(node));
    } catch (const std::bad_alloc&) {
      // The node is then freed here.
    }
    return;
  }
  std::vector<std::shared_ptr<GradientNode>> nodes;
  list = &nodes;
  for (node.reset(); !nodes.empty();) {
    const std::shared_ptr<GradientNode> next = std::move(nodes.back());
    nodes.pop_back();
  }
  list = nullptr;
}

std::byte* TensorState::data() {
  if (!storage->data && space) return space->find({place, place + shape.elements()}, dtype);
  if (initial) {
    const MemoryScope scope("parameters");
    const std::unique_ptr<InitialValues> values = std::move(initial);
    storage = Storage::make(shape.elements() * bytes(dtype), storage->stream);
    values->fill({storage, 0, {shape.elements()}, dtype}, 0);
  }
  return storage->data.get() + offset_bytes;
}

const TensorState& Tensor::state(const char* what) const {
  expect(state_ != nullptr, "an empty tensor has no ", what);
  return *state_;
}

const Shape& Tensor::shape() const { return state("shape").shape; }

DType Tensor::dtype() const { return state("dtype").dtype; }

const Stream& Tensor::stream() const { return state("stream").stream; }

View Tensor::view() const {
  if (!state_) return {};
  return {state_->data(), state_->shape, state_->dtype};
}

Tensor Tensor::part(int64_t first, const Shape& part_shape) const {
  if (state_->initial) state_->data();  // a declared tensor gets the memory that all parts share
  Tensor part;
  part.state_ = std::make_shared<TensorState>();
  part.state_->storage = state_->storage;
  part.state_->offset_bytes = state_->offset_bytes + first * bytes(dtype());
  part.state_->shape = part_shape;
  part.state_->dtype = dtype();
  part.state_->stream = state_->stream;
  part.state_->space = state_->space;
  part.state_->place = state_->place + first;
  return part;
}

Tensor Tensor::reshape(Shape new_shape) const {
  const OperationScope operation("reshape");
  expect(new_shape.elements() == size(), "x is ", shape(), ", which has not the elements of ", new_shape);
  return record("reshape", part(0, new_shape), {*this},
                [old_shape = shape()](const Tensor& dy) -> Gradients { return {dy.reshape(old_shape)}; });
}

Tensor Tensor::reshape(std::initializer_list<int64_t> extents) const {
  const OperationScope operation("reshape");
  int64_t known = 1;
  for (int64_t extent : extents)
    if (extent != -1) known *= extent;
  Shape resolved;
  for (int64_t extent : extents) {
    expect(extent != -1 || (known > 0 && size() % known == 0), "x is ", shape(), ", whose ", size(),
           " elements do not fit an extent of -1");
    resolved.append(extent == -1 ? size() / known : extent);
  }
  return reshape(resolved);
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  const OperationScope operation("slice");
  expect(shape().rank() > 0 && 0 <= begin && begin <= end && end <= shape()[0], "x is ", shape(),
         " and has no rows [", begin, ", ", end, ")");
  const int64_t row_elements = shape()[0] == 0 ? 0 : size() / shape()[0];
  Shape rows{end - begin};
  for (int i = 1; i < shape().rank(); ++i) rows.append(shape()[i]);
  return record("slice", part(begin * row_elements, rows), {*this},
                [all = shape(), begin, end](const Tensor& dy) -> Gradients {
                  const Tensor dx = full(all, 0.0, dy.dtype(), dy.stream());
                  copy(dy, dx.slice(begin, end));
                  return {dx};
                });
}

Tensor Tensor::detach() const { return state_ ? part(0, shape()) : Tensor(); }

Tensor& Tensor::set_requires_grad(bool on) {
  expect(state_ != nullptr && !state_->node, "only a leaf can be set to require a gradient");
  if (on && !state_->leaf) state_->leaf = std::make_unique<LeafGradient>();
  if (!on) state_->leaf.reset();
  return *this;
}

bool Tensor::requires_grad() const { return state_ && state_->wants_gradient(); }

Tensor Tensor::grad() const {
  if (!state_ || !state_->leaf || !state_->leaf->is_written) return {};
  expect(!state_->space || state_->space->gradients_are_whole,
         "this rank holds only the gradients of the values that it updates: call "
         "DataParallel::gather_gradients() first (impossible if ",
         option_name("shard"), " shards gradients)");
  return state_->leaf->buffer;
}

View Tensor::operand(DType wanted) const {
  if (!state_ || dtype() == wanted) return view();
  expect(compute_dtype() == wanted, "a parameter in ", dtype(), " has no copy in ", wanted,
         ", which this operation computes in");
  return {state_->space->find({state_->place, state_->place + size()}, wanted), shape(), wanted};
}

DType Tensor::compute_dtype() const {
  return state_ && state_->space ? state_->space->compute_dtype() : dtype();
}

LeafGradient& leaf_gradient(const Tensor& leaf) {
  expect(Tape::state(leaf) != nullptr && Tape::state(leaf)->leaf != nullptr,
         "the tensor is not a leaf that requires a gradient");
  return *Tape::state(leaf)->leaf;
}

}  // namespace lockstep
