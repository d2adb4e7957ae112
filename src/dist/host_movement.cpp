// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/event.h"
#include "core/gpu.h"
#include "dist/movement.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

std::shared_ptr<Storage> private_memory(int64_t count, const Stream& stream) {
  const auto storage = Storage::make(count * 4, stream);
  launch(stream, Fill{.y = {storage->data.get(), {count}, DType::f32}});
  return storage;
}

int64_t size_of(const std::vector<Range>& ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

class InSharedMemory final : public Movement {
 public:
  explicit InSharedMemory(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)), rank_(static_cast<size_t>(communicator_->rank())) {
    if (auto memory = communicator_->share(64))
      // Shared memory means one host.
      meeting_ = std::make_unique<SharedBarrier>(std::move(memory), communicator_->rank(),
                                                 communicator_->size() > available_cores());
  }

  const char* name() const override { return "in shared memory"; }
  // Of the calling thread, because two threads must not share a pool.
  const Stream& stream() const override { return cpu_stream(); }

  std::shared_ptr<Storage> allocate(int64_t count, bool is_common) override {
    auto block = meeting_ ? communicator_->share(std::max<int64_t>(64, count * 4), is_common) : nullptr;
    if (!block && (is_common || blocks_.empty())) return nullptr;
    if (!block) return private_memory(count, stream());
    if (!is_common) blocks_.push_back(block);
    return std::make_shared<Storage>(Storage{{block, block->of_rank[rank_]}, count * 4, cpu_stream()});
  }

  std::vector<std::vector<const float*>> scatter(const Scatter& what) override {
    meet("tree_scatter", what.bucket.range.size() * 4);
    std::vector<std::vector<const float*>> inputs;
    for (const Range& range : what.bucket.owned[rank_]) {
      inputs.emplace_back();
      for (size_t peer = 0; peer < what.slots_of_rank.size(); ++peer)
        for (int slot = 0; slot < what.slots_of_rank[peer]; ++slot)
          inputs.back().push_back(of_peer(what.slots, peer) + slot * what.stride + range.begin);
    }
    return inputs;
  }

  void gather(float* flat, const Ownership& owned, int root) override {
    if (!block_of(flat)) {
      const GatherMessages messages(flat, owned, communicator_->rank(), root);
      return communicator_->exchange(messages.sends, messages.receives);
    }
    meet("tree_gather", size_of(owned[rank_]) * 4);
    if (root != everybody && root != communicator_->rank()) return;
    constexpr int64_t piece_elements = int64_t{1} << 16;
    std::vector<std::pair<const float*, Range>> pieces;
    for (size_t step = 1; step < owned.size(); ++step) {
      const size_t peer = (rank_ + step) % owned.size();
      for (const Range& range : owned[peer])
        for (int64_t begin = range.begin; begin < range.end; begin += piece_elements)
          pieces.emplace_back(of_peer(flat, peer), Range{begin, std::min(range.end, begin + piece_elements)});
    }
    std::get<CpuStream>(stream()).for_each_chunk(
        static_cast<int64_t>(pieces.size()), 1, [&](int64_t index, int64_t) {
          const auto& [from, range] = pieces[static_cast<size_t>(index)];
          std::copy(from + range.begin, from + range.end, flat + range.begin);
        });
  }

  void sum(float* values, int64_t count) override { communicator_->native_all_reduce(values, count); }
  /// Nobody may overwrite what a slower rank still reads.
  void join() override { meet("tree_release", 0); }

 private:
  void meet(const char* name, int64_t bytes) {
    communicator_->recorded(name, bytes,
                            [&] { meeting_->wait(communicator_->timeout(), communicator_->cancelled()); });
  }
  const SharedMemory* block_of(const float* memory) const {
    const auto* at = reinterpret_cast<const std::byte*>(memory);
    for (const auto& block : blocks_)
      if (at >= block->of_rank[rank_] && at < block->of_rank[rank_] + block->bytes) return block.get();
    return nullptr;
  }
  /// The same place in the memory of another rank.
  const float* of_peer(const float* mine, size_t peer) const {
    const SharedMemory* block = block_of(mine);
    const auto offset = reinterpret_cast<const std::byte*>(mine) - block->of_rank[rank_];
    return reinterpret_cast<const float*>(block->of_rank[peer] + offset);
  }

  std::shared_ptr<Communicator> communicator_;
  size_t rank_;
  std::unique_ptr<SharedBarrier> meeting_;
  std::vector<std::shared_ptr<SharedMemory>> blocks_;
};

class AsMessages final : public Movement {
 public:
  AsMessages(std::shared_ptr<Communicator> communicator, const Stream& stream)
      : communicator_(std::move(communicator)), stream_(stream) {}

  const char* name() const override { return communicator_->size() == 1 ? "in place" : "as messages"; }
  const Stream& stream() const override { return device_of(stream_) == Device::cpu ? cpu_stream() : stream_; }
  std::shared_ptr<Storage> allocate(int64_t count, bool is_common) override {
    return is_common ? nullptr : private_memory(count, stream());
  }

  std::vector<std::vector<const float*>> scatter(const Scatter& what) override {
    const int rank = communicator_->rank();
    const auto arriving = static_cast<size_t>(arriving_elements(what.bucket, what.slots_of_rank, rank));
    if (arrived_.size() < arriving) arrived_.resize(arriving);
    ScatterMessages messages(what, rank, arrived_.data());
    if (communicator_->size() > 1) communicator_->exchange(messages.sends, messages.receives);
    return std::move(messages.inputs);
  }
  void gather(float* flat, const Ownership& owned, int root) override {
    const GatherMessages messages(flat, owned, communicator_->rank(), root);
    if (communicator_->size() > 1) communicator_->exchange(messages.sends, messages.receives);
  }
  void sum(float* values, int64_t count) override { communicator_->native_all_reduce(values, count); }

 private:
  std::shared_ptr<Communicator> communicator_;
  Stream stream_;
  std::vector<float> arrived_;
};

/// Ranks whose GPUs cannot speak to each other, or that share one. Copies to the host run beside the
/// backward; the rest is the host's, which waits.
class ThroughHost final : public Movement {
 public:
  ThroughHost(std::unique_ptr<Movement> on_host, std::shared_ptr<Storage> slots, int rank,
              const Stream& stream)
      : on_host_(std::move(on_host)),
        slots_(std::move(slots)),
        rank_(static_cast<size_t>(rank)),
        stream_(stream),
        copies_(make_gpu_stream(gpu_of(stream), true)),
        pinned_(allocate_pinned(slots_->bytes)) {}

  const char* name() const override { return "through the host"; }
  const Stream& stream() const override { return cpu_stream(); }
  std::shared_ptr<Storage> allocate(int64_t count, bool is_common) override {
    return is_common ? nullptr : private_memory(count, stream_);
  }

  void offer(const Scatter& what) override {
    written_.record(stream_);
    written_.hold(copies_);
    const Range range = what.bucket.range;
    for (int64_t at = range.begin, i = 0; i < what.written; ++i, at += what.stride)
      copy_bytes_in_background(pinned() + at, what.slots + at, range.size() * 4, copies_);
    arrived_[range.begin].record(copies_);
  }
  float* land(const Scatter& what) override {
    const Range range = what.bucket.range;
    if (what.written > 0) arrived_.at(range.begin).synchronize();
    for (int64_t at = range.begin, i = 0; i < what.written; ++i, at += what.stride)
      std::copy_n(pinned() + at, range.size(), host() + at);
    return host();
  }
  std::vector<std::vector<const float*>> scatter(const Scatter& what) override {
    Scatter host_scatter = what;
    host_scatter.slots = host();
    return on_host_->scatter(host_scatter);
  }
  void deliver(const Scatter& what) override {
    for (const Range& range : what.bucket.owned[rank_]) {
      std::copy(host() + range.begin, host() + range.end, pinned() + range.begin);
      copy_bytes_in_background(what.slots + range.begin, pinned() + range.begin, range.size() * 4, stream_);
    }
  }
  void gather(float* flat, const Ownership& owned, int root) override {
    for (const Range& range : owned[rank_])
      copy_bytes(host() + range.begin, cpu_stream(), flat + range.begin, stream_, range.size() * 4);
    on_host_->gather(host(), owned, root);
    const bool receives = root == everybody || root == static_cast<int>(rank_);
    for (size_t peer = 0; peer < owned.size() && receives; ++peer)
      for (const Range& range : owned[peer])
        if (peer != rank_)
          copy_bytes(flat + range.begin, stream_, host() + range.begin, cpu_stream(), range.size() * 4);
    on_host_->join();
  }
  void sum(float* values, int64_t count) override { on_host_->sum(values, count); }
  void join() override { on_host_->join(); }

 private:
  float* host() const { return reinterpret_cast<float*>(slots_->data.get()); }
  float* pinned() const { return reinterpret_cast<float*>(pinned_.get()); }

  std::unique_ptr<Movement> on_host_;
  std::shared_ptr<Storage> slots_;
  size_t rank_;
  Stream stream_;
  Stream copies_;  ///< a queue of their own
  std::shared_ptr<std::byte> pinned_;
  Event written_;
  std::map<int64_t, Event> arrived_;  ///< by where a bucket begins: it is in pinned memory
};

Message message(int peer, const float* begin, int64_t count) {
  // Of a message that is sent, nothing is written.
  return {peer, reinterpret_cast<std::byte*>(const_cast<float*>(begin)), count * 4};
}

}  // namespace

std::unique_ptr<Movement> move_in_shared_memory(std::shared_ptr<Communicator> communicator) {
  return std::make_unique<InSharedMemory>(std::move(communicator));
}

std::unique_ptr<Movement> move_as_messages(std::shared_ptr<Communicator> communicator, const Stream& stream) {
  return std::make_unique<AsMessages>(std::move(communicator), stream);
}

std::unique_ptr<Movement> move_through_host(std::unique_ptr<Movement> on_host, std::shared_ptr<Storage> slots,
                                            int rank, const Stream& stream) {
  return std::make_unique<ThroughHost>(std::move(on_host), std::move(slots), rank, stream);
}

ScatterMessages::ScatterMessages(const Movement::Scatter& what, int rank, float* arrived)
    : inputs(what.bucket.owned[static_cast<size_t>(rank)].size()) {
  const std::vector<Range>& mine = what.bucket.owned[static_cast<size_t>(rank)];
  for (int peer = 0; peer < static_cast<int>(what.slots_of_rank.size()); ++peer) {
    for (int slot = 0; slot < what.slots_of_rank[static_cast<size_t>(peer)]; ++slot)
      for (size_t i = 0; i < mine.size(); ++i) {
        inputs[i].push_back(peer == rank ? what.slots + slot * what.stride + mine[i].begin : arrived);
        if (peer == rank) continue;
        receives.push_back(message(peer, arrived, mine[i].size()));
        arrived += mine[i].size();
      }
    if (peer == rank) continue;
    for (int slot = 0; slot < what.slots_of_rank[static_cast<size_t>(rank)]; ++slot)
      for (const Range& range : what.bucket.owned[static_cast<size_t>(peer)])
        sends.push_back(message(peer, what.slots + slot * what.stride + range.begin, range.size()));
  }
}

int64_t arriving_elements(const BucketPlan::Bucket& bucket, const std::vector<int>& slots_of_rank, int rank) {
  int64_t slots = 0;
  for (size_t peer = 0; peer < slots_of_rank.size(); ++peer)
    if (static_cast<int>(peer) != rank) slots += slots_of_rank[peer];
  return slots * size_of(bucket.owned[static_cast<size_t>(rank)]);
}

GatherMessages::GatherMessages(float* flat, const Ownership& owned, int rank, int root) {
  const auto receives_it = [&](int peer) { return root == Movement::everybody || root == peer; };
  for (int peer = 0; peer < static_cast<int>(owned.size()); ++peer) {
    if (peer == rank) continue;
    if (receives_it(peer))
      for (const Range& range : owned[static_cast<size_t>(rank)])
        sends.push_back(message(peer, flat + range.begin, range.size()));
    if (receives_it(rank))
      for (const Range& range : owned[static_cast<size_t>(peer)])
        receives.push_back(message(peer, flat + range.begin, range.size()));
  }
}

}  // namespace lockstep
