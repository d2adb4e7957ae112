// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "lockstep/comm/shared_memory.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/process.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/movement/movement.h"

namespace lockstep {
namespace {

std::shared_ptr<Storage> private_memory(int64_t count, const Stream& stream) {
  const auto storage = Storage::make(count * 4, stream);
  launch(stream, Fill{.y = {storage->data.get(), {count}, DType::f32}});
  return storage;
}

/// Returns memory of at least `bytes`, which later calls use again.
std::byte* grown(std::shared_ptr<Storage>& memory, int64_t bytes, const Stream& stream) {
  if (!memory || memory->bytes < bytes) {
    const MemoryScope scope("gradients");
    memory = Storage::make(bytes, stream);
  }
  return memory->data.get();
}

class AsMessages : public Movement {
 public:
  AsMessages(std::shared_ptr<Communicator> communicator, const Stream& stream)
      : communicator_(std::move(communicator)), stream_(stream), copies_(stream) {
    if (device_of(stream) == Device::cuda && !mode_of(stream).is_dry)
      copies_ = make_gpu_stream(gpu_of(stream), true);
  }

  const char* name() const override { return communicator_->size() == 1 ? "in place" : "as messages"; }
  // On a CPU this is the calling thread's stream, because two threads must not share a pool.
  const Stream& stream() const override { return device_of(stream_) == Device::cpu ? cpu_stream() : stream_; }
  const Stream& arrivals() const override {
    return device_of(copies_) == Device::cpu ? cpu_stream() : copies_;
  }
  std::shared_ptr<Storage> allocate(int64_t count, bool is_common) override {
    return is_common ? nullptr : private_memory(count, stream());
  }

  std::vector<std::vector<const float*>> scatter(const Scatter& what) override {
    const int rank = communicator_->rank();
    std::byte* const memory =
        grown(arrived_, 4 * arriving_elements(what.bucket, what.slots_of_rank, rank), stream());
    ScatterMessages messages(what, rank, reinterpret_cast<float*>(memory));
    if (communicator_->size() > 1) communicator_->exchange(messages.sends, messages.receives);
    return std::move(messages.inputs);
  }
  void transfer(const Transfer& what) override {
    if (device_of(copies_) == Device::cpu) {
      copy_what_stays(what, stream());
      if (communicator_->size() > 1)
        communicator_->exchange(what.plan.message_rounds(what.source(), what.target(), what.element_bytes()));
      return;
    }
    if (what.is_in_place() || what.plan.stays.empty()) return;
    written_.record(stream_);
    written_.hold(copies_);
    copy_what_stays(what, copies_);
    is_forked_ = true;
  }
  void sum(float* values, int64_t count) override { communicator_->native_all_reduce(values, count); }
  void join() override {
    if (!std::exchange(is_forked_, false)) return;
    done_.record(copies_);
    done_.hold(stream_);
  }

 protected:
  std::shared_ptr<Communicator> communicator_;

 private:
  Stream stream_;
  Stream copies_;  ///< on a GPU a queue of its own
  Event written_, done_;
  bool is_forked_ = false;
  std::shared_ptr<Storage> arrived_;
};

/// Ranks of one host read each other's memory in place. Memory that is not shared is sent as messages.
class InSharedMemory final : public AsMessages {
 public:
  explicit InSharedMemory(std::shared_ptr<Communicator> communicator)
      : AsMessages(std::move(communicator), cpu_stream()), rank_(static_cast<size_t>(communicator_->rank())) {
    mailboxes_ = communicator_->share(mailboxes_begin + 2 * mailbox_bytes);
    if (mailboxes_)
      // If ranks outnumber their cores, a rank that waits lets others run.
      meeting_ = std::make_unique<SharedBarrier>(
          mailboxes_, communicator_->rank(),
          detail::count_ranks_on_my_cores(*communicator_) > available_cores());
  }

  const char* name() const override { return "in shared memory"; }

  std::shared_ptr<Storage> allocate(int64_t count, bool is_common) override {
    auto block = meeting_ ? communicator_->share(std::max<int64_t>(64, count * 4), is_common) : nullptr;
    if (!block && (is_common || blocks_.empty())) return nullptr;
    if (!block) return private_memory(count, stream());
    if (!is_common) blocks_.push_back(block);
    return std::make_shared<Storage>(Storage{{block, block->of_rank[rank_]}, count * 4, cpu_stream()});
  }

  std::vector<std::vector<const float*>> scatter(const Scatter& what) override {
    if (!block_of(reinterpret_cast<const std::byte*>(what.first))) return AsMessages::scatter(what);
    is_read_in_place_ = true;
    meet("tree_scatter", what.bucket.range.size() * 4);
    std::vector<std::vector<const float*>> inputs;
    for (const Range& range : what.bucket.owned[rank_]) {
      inputs.emplace_back();
      for (size_t peer = 0; peer < what.slots_of_rank.size(); ++peer)
        for (int slot = 0; slot < what.slots_of_rank[peer]; ++slot)
          inputs.back().push_back(of_peer(what.at(slot, range.begin), peer));
    }
    return inputs;
  }

  std::vector<const float*> all_gather(const Scatter& what) override {
    const int64_t count = what.bucket.range.size();
    const int slots = std::accumulate(what.slots_of_rank.begin(), what.slots_of_rank.end(), 0);
    if (slots * count * 4 > mailbox_bytes) return {};
    const auto place = [&](size_t peer, int slot) {
      std::byte* const mailbox = mailboxes_->of_rank[peer] + mailboxes_begin + turn_ * mailbox_bytes;
      return reinterpret_cast<float*>(mailbox) + slot * count;
    };
    for (int slot = 0; slot < what.slots_of_rank[rank_] && !mode_of(stream()).is_dry; ++slot)
      std::copy_n(what.at(slot, what.bucket.range.begin), count, place(rank_, slot));
    meet("tree_all_reduce", count * 4);
    std::vector<const float*> inputs;
    for (size_t peer = 0; peer < what.slots_of_rank.size(); ++peer)
      for (int slot = 0; slot < what.slots_of_rank[peer]; ++slot) inputs.push_back(place(peer, slot));
    turn_ = 1 - turn_;
    return inputs;
  }

  void transfer(const Transfer& what) override {
    if (!block_of(what.source())) return AsMessages::transfer(what);
    is_read_in_place_ = true;
    if (!what.is_settled) meet("tree_gather", what.from.bytes());
    copy_what_stays(what, cpu_stream());
    if (mode_of(stream()).is_dry) return;
    constexpr int64_t piece_bytes = int64_t{1} << 18;
    struct Part {
      const std::byte* from;
      std::byte* to;
      int64_t bytes;
    };
    std::vector<Part> parts;
    for (const TransferPlan::Copy& piece : what.plan.receives) {
      const std::byte* from =
          of_peer(what.source(), static_cast<size_t>(piece.peer)) + piece.from * what.element_bytes();
      std::byte* const to = what.target(piece.to);
      const int64_t bytes = piece.count * what.element_bytes();
      for (int64_t begin = 0; begin < bytes; begin += piece_bytes)
        parts.push_back({from + begin, to + begin, std::min(bytes - begin, piece_bytes)});
    }
    const SharedMemory& block = *block_of(what.source());
    std::get<CpuStream>(stream()).for_each_chunk(
        static_cast<int64_t>(parts.size()), 1, [&](int64_t index, int64_t) {
          const auto& [from, to, bytes] = parts[static_cast<size_t>(index)];
          std::memcpy(to, from, static_cast<size_t>(bytes));
          if (what.is_lent) block.release(from, bytes);
        });
  }

  void release(const Scatter& what) override {
    const SharedMemory* const block = block_of(reinterpret_cast<const std::byte*>(what.first));
    for (size_t peer = 0; peer < what.slots_of_rank.size() && block != nullptr; ++peer)
      for (int slot = 0; slot < what.slots_of_rank[peer] && peer != rank_; ++slot)
        for (const Range& range : what.bucket.owned[rank_])
          block->release(reinterpret_cast<const std::byte*>(of_peer(what.at(slot, range.begin), peer)),
                         range.size() * 4);
  }
  /// Waits for all ranks, so that no rank overwrites memory that a slower rank still reads.
  void join() override {
    if (std::exchange(is_read_in_place_, false)) meet("tree_release", 0);
  }

 private:
  // Mailboxes follow each rank's counter of the barrier. Each has room for two slots of the smallest bucket
  // of a space. Small buckets alternate between the two mailboxes, so ranks meet once per bucket. A rank that
  // refills a mailbox has met the others since they filled the other one. So they have read this one.
  static constexpr int64_t mailboxes_begin = 64,
                           mailbox_bytes = 2 * 4 * (BucketPlan::reserved + ParameterLayout::block);

  void meet(const char* name, int64_t bytes) {
    communicator_->recorded(name, bytes,
                            [&] { meeting_->wait(communicator_->timeout(), communicator_->cancelled()); });
  }
  const SharedMemory* block_of(const std::byte* at) const {
    for (const auto& block : blocks_)
      if (at >= block->of_rank[rank_] && at < block->of_rank[rank_] + block->bytes) return block.get();
    return nullptr;
  }
  /// Returns the address in another rank's block that corresponds to `mine`.
  const std::byte* of_peer(const std::byte* mine, size_t peer) const {
    const SharedMemory* block = block_of(mine);
    return block->of_rank[peer] + (mine - block->of_rank[rank_]);
  }
  const float* of_peer(const float* mine, size_t peer) const {
    return reinterpret_cast<const float*>(of_peer(reinterpret_cast<const std::byte*>(mine), peer));
  }

  size_t rank_;
  std::shared_ptr<SharedMemory> mailboxes_;
  int turn_ = 0;
  std::unique_ptr<SharedBarrier> meeting_;
  bool is_read_in_place_ = false;  ///< since the last join(), other ranks' memory is read
  std::vector<std::shared_ptr<SharedMemory>> blocks_;
};

/// The movement of ranks whose GPUs cannot communicate, or that share a GPU. Copies to the host run
/// concurrently with the backward. The host does the rest and waits for it.
class ThroughHost final : public Movement {
 public:
  ThroughHost(std::unique_ptr<Movement> on_host, int rank, const Stream& stream)
      : on_host_(std::move(on_host)),
        rank_(static_cast<size_t>(rank)),
        stream_(stream),
        copies_(make_gpu_stream(gpu_of(stream), true)) {}

  const char* name() const override { return "through the host"; }
  const Stream& stream() const override { return cpu_stream(); }
  std::shared_ptr<Storage> allocate(int64_t count, bool is_common) override {
    if (is_common) return nullptr;
    auto storage = private_memory(count, stream_);
    images_[storage->data.get()].bytes = count * 4;
    return storage;
  }

  void enqueue(const Scatter& what) override {
    written_.record(stream_);
    written_.hold(copies_);
    const int64_t begin = what.bucket.range.begin;
    for (int slot = 0; slot < what.written; ++slot)
      copy_bytes_in_background(pinned(what.at(slot, begin)), what.at(slot, begin),
                               what.bucket.range.size() * 4, copies_);
    arrived_[begin].record(copies_);
  }
  float* stage(const Scatter& what) override {
    const int64_t begin = what.bucket.range.begin;
    if (what.written > 0) arrived_.at(begin).synchronize();
    for (int slot = 0; slot < what.written; ++slot)
      std::copy_n(pinned(what.at(slot, begin)), what.bucket.range.size(), on_host(what.at(slot, begin)));
    return on_host(what.first);
  }
  std::vector<std::vector<const float*>> scatter(const Scatter& what) override {
    return on_host_->scatter(what);
  }
  void publish(const Scatter& what) override {
    for (const Range& range : what.bucket.owned[rank_]) {
      float* const mean = what.at(0, range.begin);
      std::copy_n(on_host(mean), range.size(), pinned(mean));
      copy_bytes_in_background(mean, pinned(mean), range.size() * 4, stream_);
    }
  }
  void transfer(const Transfer& what) override {
    int64_t end = 0;
    for (const auto* pieces : {&what.plan.receives, &what.plan.stays})
      for (const TransferPlan::Copy& piece : *pieces) end = std::max(end, piece.to + piece.count);
    const View from = what.from_host ? what.from : copy_to_host(what);
    View to = from;
    if (!what.is_in_place()) to.data = grown(to_, end * what.element_bytes(), cpu_stream());
    const Transfer there{.plan = what.plan, .from = from, .to = to, .is_settled = what.is_settled};
    on_host_->transfer(there);
    const auto copy_from_host = [&](const TransferPlan::Copy& piece) {
      copy_bytes(what.target(piece.to), stream_, there.target(piece.to), cpu_stream(),
                 piece.count * what.element_bytes());
    };
    std::ranges::for_each(what.plan.receives, copy_from_host);
    if (!what.is_in_place()) std::ranges::for_each(what.plan.stays, copy_from_host);
  }
  void sum(float* values, int64_t count) override { on_host_->sum(values, count); }
  void join() override { on_host_->join(); }

 private:
  /// Copies to the host all elements that are sent or stay. Returns the buffer there.
  View copy_to_host(const Transfer& what) {
    std::byte* const from = grown(from_, what.from.bytes(), cpu_stream());
    std::map<int64_t, int64_t> count_at;  // most ranks receive the same elements
    for (const auto* pieces : {&what.plan.sends, &what.plan.stays})
      for (const TransferPlan::Copy& piece : *pieces)
        count_at[piece.from] = std::max(count_at[piece.from], piece.count);
    for (const auto& [first, count] : count_at)
      copy_bytes(from + first * what.element_bytes(), cpu_stream(), what.source(first), stream_,
                 count * what.element_bytes());
    return {from, what.from.shape, what.from.dtype};
  }

  /// Host memory that mirrors a block of GPU memory.
  struct Image {
    int64_t bytes = 0;
    std::shared_ptr<Storage> memory = {};
    std::shared_ptr<std::byte> pinned = {};
  };

  std::pair<Image&, int64_t> image_of(const float* on_gpu) {
    const auto* const at = reinterpret_cast<const std::byte*>(on_gpu);
    const auto image = std::prev(images_.upper_bound(at));
    expect(at < image->first + image->second.bytes,
           "the gradients are in memory that the movement has not allocated");
    return {image->second, at - image->first};
  }
  float* on_host(const float* on_gpu) {
    const auto [image, offset] = image_of(on_gpu);
    // Made for staged buckets, which all ranks stage in the same order. Values and step summaries never need
    // it.
    if (!image.memory) image.memory = on_host_->allocate(image.bytes / 4, false);
    return reinterpret_cast<float*>(image.memory->data.get() + offset);
  }
  float* pinned(const float* on_gpu) {
    const auto [image, offset] = image_of(on_gpu);
    if (!image.pinned) image.pinned = allocate_pinned(image.bytes);
    return reinterpret_cast<float*>(image.pinned.get() + offset);
  }

  std::unique_ptr<Movement> on_host_;
  size_t rank_;
  Stream stream_;
  Stream copies_;  ///< a queue of their own
  std::map<const std::byte*, Image> images_;
  std::shared_ptr<Storage> from_, to_;  ///< host buffers of a transfer
  Event written_;
  std::map<int64_t, Event> arrived_;  ///< [first element of a bucket], the bucket is in pinned memory
};

}  // namespace

void copy_what_stays(const Movement::Transfer& what, const Stream& stream) {
  if (what.is_in_place()) return;
  for (const TransferPlan::Copy& piece : what.plan.stays)
    copy_bytes_in_background(what.target(piece.to), what.source(piece.from),
                             piece.count * what.element_bytes(), stream);
}

std::unique_ptr<Movement> move_in_shared_memory(std::shared_ptr<Communicator> communicator) {
  return std::make_unique<InSharedMemory>(std::move(communicator));
}

std::unique_ptr<Movement> move_as_messages(std::shared_ptr<Communicator> communicator, const Stream& stream) {
  return std::make_unique<AsMessages>(std::move(communicator), stream);
}

std::unique_ptr<Movement> move_through_host(std::unique_ptr<Movement> on_host, int rank,
                                            const Stream& stream) {
  return std::make_unique<ThroughHost>(std::move(on_host), rank, stream);
}

ScatterMessages::ScatterMessages(const Movement::Scatter& what, int rank, float* arrived)
    : inputs(what.bucket.owned[static_cast<size_t>(rank)].size()) {
  const std::vector<Range>& mine = what.bucket.owned[static_cast<size_t>(rank)];
  for (int peer = 0; peer < static_cast<int>(what.slots_of_rank.size()); ++peer) {
    for (int slot = 0; slot < what.slots_of_rank[static_cast<size_t>(peer)]; ++slot)
      for (size_t i = 0; i < mine.size(); ++i) {
        inputs[i].push_back(peer == rank ? what.at(slot, mine[i].begin) : arrived);
        if (peer == rank) continue;
        receives.push_back({peer, reinterpret_cast<std::byte*>(arrived), mine[i].size() * 4});
        arrived += mine[i].size();
      }
    if (peer == rank) continue;
    for (int slot = 0; slot < what.slots_of_rank[static_cast<size_t>(rank)]; ++slot)
      for (const Range& range : what.bucket.owned[static_cast<size_t>(peer)])
        sends.push_back(
            {peer, reinterpret_cast<const std::byte*>(what.at(slot, range.begin)), range.size() * 4});
  }
}

int64_t arriving_elements(const BucketPlan::Bucket& bucket, const std::vector<int>& slots_of_rank, int rank) {
  int64_t slots = 0;
  for (size_t peer = 0; peer < slots_of_rank.size(); ++peer)
    if (static_cast<int>(peer) != rank) slots += slots_of_rank[peer];
  return slots * size_of(bucket.owned[static_cast<size_t>(rank)]);
}

}  // namespace lockstep
