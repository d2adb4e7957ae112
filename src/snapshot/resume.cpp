// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>

#include "core/error.h"
#include "nn/module.h"
#include "snapshot/snapshot.h"
#include "tensor/create.h"
#include "tensor/ops.h"
#include "tensor/safetensors.h"

namespace lockstep {
namespace {

using Take = std::function<void(std::span<const std::byte>)>;

/// Rank 0's pieces on every rank, and its failure.
void broadcast_pieces(const World& world, const std::function<void(const Take&)>& read, const Take& take) {
  Communicator& communicator = world.communicator();
  int64_t bytes = 0;
  std::string problem;
  if (world.is_first()) {
    try {
      read([&](std::span<const std::byte> piece) {
        bytes = std::ssize(piece);
        if (world.size() > 1 && bytes > 0) {
          communicator.broadcast(&bytes, sizeof bytes, 0);
          communicator.broadcast(const_cast<std::byte*>(piece.data()), bytes, 0);
        }
        take(piece);
      });
    } catch (const UserError& error) {
      problem = error.what();
    }
  }
  std::vector<std::byte> piece;
  for (bytes = 0; world.size() > 1;) {
    communicator.broadcast(&bytes, sizeof bytes, 0);
    if (bytes == 0) break;
    piece.resize(static_cast<size_t>(bytes));
    communicator.broadcast(piece.data(), bytes, 0);
    take(piece);
  }
  on_first_rank(world, [&] { require(problem.empty(), problem); });
}

Shape reversed(const Shape& shape) { return shape.rank() == 2 ? Shape{shape[1], shape[0]} : shape; }

/// Whether this lay [out, in] in format 1: a weight of a GPT's products, or what an optimizer keeps of one.
bool was_out_in(const std::string& name) {
  return is_in_out(name) || is_in_out(name.substr(0, name.rfind('.')));
}

/// One file of a snapshot on its way into tensors of the same names.
class Restoration {
 public:
  Restoration(const std::vector<NamedTensor>& targets, int64_t format, std::string what)
      : format_(format),
        what_(std::move(what)),
        reader_([this](const auto& entries) { return places(entries); }) {
    for (const NamedTensor& target : targets) targets_[target.name] = target.tensor;
  }

  /// A file that makes no sense is not read on, but what comes is taken, as on the other ranks.
  void take(std::span<const std::byte> piece) {
    attempt([&] { reader_.take(piece); });
  }

  void finish() {
    attempt([&] { reader_.finish(); });
    require(problem_.empty(), what_, ": ", problem_);
    for (const Tensor& tensor : to_transpose_)
      copy(transpose(tensor.detach().reshape(reversed(tensor.shape()))), tensor);
  }

 private:
  template <class Body>
  void attempt(Body body) {
    if (!problem_.empty()) return;
    try {
      body();
    } catch (const std::exception& problem) {
      problem_ = problem.what();
    }
  }

  std::vector<Tensor> places(const std::vector<SafeTensorsEntry>& entries) {
    std::vector<Tensor> places;
    bool is_turned = false;
    for (const SafeTensorsEntry& entry : entries) {
      const auto found = targets_.find(entry.name);
      places.push_back(found == targets_.end() ? Tensor() : found->second);
      if (!places.back()) continue;
      const Shape& shape = places.back().shape();
      const bool is_linear = format_ == 1 && shape.rank() == 2 && was_out_in(entry.name);
      require(entry.dtype == places.back().dtype() &&
                  (entry.shape == shape || (is_linear && reversed(entry.shape) == shape)),
              entry.name, " is ", entry.dtype, entry.shape, " where the model has ", places.back().dtype(),
              shape);
      if (is_linear) to_transpose_.push_back(places.back());
      is_turned |= entry.shape != shape;
      targets_.erase(found);
    }
    // A square one does not tell, but every block has others beside it.
    if (!is_turned) to_transpose_.clear();
    require(targets_.empty(), "there is no tensor ", targets_.empty() ? "" : targets_.begin()->first);
    return places;
  }

  std::map<std::string, Tensor> targets_;
  int64_t format_;
  std::string what_;
  SafeTensorsReader reader_;
  std::vector<Tensor> to_transpose_;
  std::string problem_;
};

void restore_file(const StoredSnapshot& snapshot, const World& world, const char* file,
                  const std::vector<NamedTensor>& targets) {
  Restoration restoration(targets, snapshot.format(), snapshot.name() + "/" + file);
  broadcast_pieces(
      world, [&](const Take& take) { snapshot.read(file, take); },
      [&](std::span<const std::byte> piece) { restoration.take(piece); });
  restoration.finish();
}

}  // namespace

void restore(const StoredSnapshot& snapshot, const World& world, const std::vector<NamedTensor>& parameters,
             Optimizer* optimizer) {
  restore_file(snapshot, world, model_file, parameters);
  if (optimizer == nullptr) return;
  optimizer->space().refresh_copies();
  restore_file(snapshot, world, optimizer_file, optimizer->state());
  optimizer->set_steps_taken(snapshot.state().optimizer_steps);
}

}  // namespace lockstep
