// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>

#include "lockstep/comm/nccl_communicator.h"
#include "lockstep/comm/watchdog.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/grad_scale.h"
#include "lockstep/movement/movement.h"

namespace lockstep {
namespace {

/// The movement of ranks with one GPU each. The two queues synchronize by events alone, so a whole step can
/// be recorded as a graph.
class ByNccl final : public Movement {
 public:
  ByNccl(std::shared_ptr<Communicator> communicator, const BucketPlan& buckets, const ReductionPlan& plan,
         const Stream& stream, bool gathers_first)
      : communicator_(std::move(communicator)),
        stream_(stream),
        gathers_first_(gathers_first),
        nccl_(connect_nccl(*communicator_, gpu_of(stream))),
        communication_(make_gpu_stream(gpu_of(stream), true)),
        counter_(lockstep::allocate(2 * sizeof(int32_t), stream)),
        counted_here_(allocate_pinned(sizeof(int32_t))) {
    int64_t most = 0;
    for (const BucketPlan::Bucket& bucket : buckets.buckets)
      for (const ReductionPlan::Round& round : plan.rounds)
        most = std::max(most, arriving_elements(bucket, round.slots_of_rank, communicator_->rank()));
    arrived_ = nccl_->allocate(most * 4, communication_);
    const std::array<int32_t, 2> zeros = {};
    copy_bytes(counter_.get(), stream, zeros.data(), cpu_stream(), sizeof(zeros));
    reinterpret_cast<int32_t&>(*counted_here_) = 0;
    watchdog_ = std::make_unique<Watchdog>(
        *communicator_, Watchdog::Transport{.background_error = [this] { return nccl_->background_error(); },
                                            .break_off = [this] { nccl_->break_off(); }});
  }

  const char* name() const override { return "by NCCL"; }
  const Stream& stream() const override { return communication_; }
  std::shared_ptr<Storage> allocate(int64_t count, bool is_common) override {
    if (is_common) return nullptr;
    auto storage = allocate_arrivals(count * 4, stream_);
    launch(stream_, Fill{.y = {storage->data.get(), {count}, DType::f32}});
    return storage;
  }
  std::shared_ptr<Storage> allocate_arrivals(int64_t bytes, const Stream& stream) override {
    return std::make_shared<Storage>(Storage{nccl_->allocate(bytes, stream), bytes, stream});
  }

  void enqueue(const Scatter&) override { fork(); }

  std::vector<std::vector<const float*>> scatter(const Scatter& what) override {
    if (what.begins_step) count_step();
    ScatterMessages messages(what, communicator_->rank(), reinterpret_cast<float*>(arrived_.get()));
    if (communicator_->size() > 1) exchange("nccl_exchange", messages.sends, messages.receives);
    return std::move(messages.inputs);
  }

  void transfer(const Transfer& what) override {
    fork();
    copy_what_stays(what, communication_);
    if (communicator_->size() == 1) return;
    // NCCL sends from GPU memory alone.
    exchange("nccl_gather",
             what.from_host ? what.plan.send_messages_from_there(what.target(), what.element_bytes())
                            : what.plan.send_messages(what.source(), what.element_bytes()),
             what.plan.receive_messages(what.target(), what.element_bytes()));
  }

  void sum(float* values, int64_t elements) override {
    watchdog_->watch("nccl_all_reduce", elements * 4, communication_,
                     [&] { nccl_->all_reduce(values, elements, communication_); });
  }

  void join() override {
    done_.record(communication_);
    done_.hold(stream_);
  }

  void check() override { watchdog_->check(); }

  void replay(const std::function<void()>& launch) override {
    ++steps_;
    // If it is empty, the deadline counts from the start of the step.
    std::function<bool()> has_begun;
    if (!gathers_first_)
      has_begun = [this, step = steps_] {
        return has_counted(std::atomic_ref(reinterpret_cast<int32_t&>(*counted_here_)).load(), step);
      };
    watchdog_->watch("recorded_step", 0, stream_, launch, has_begun);
  }

 private:
  void fork() {
    written_.record(stream_);
    written_.hold(communication_);
  }

  void exchange(const char* name, std::span<const SentMessage> sends,
                std::span<const ReceivedMessage> receives) {
    watchdog_->watch(name, bytes_of(sends), communication_,
                     [&] { nccl_->exchange(sends, receives, communication_); });
  }

  void count_step() {
    if (!is_recording_graph()) ++steps_;
    launch(communication_, CountStep{.count = {counter_.get(), {1}, DType::i32},
                                     .factor = {counter_.get() + sizeof(int32_t), {1}, DType::f32}});
    copy_bytes_in_background(counted_here_.get(), counter_.get(), sizeof(int32_t), communication_);
  }

  std::shared_ptr<Communicator> communicator_;
  Stream stream_;
  bool gathers_first_;
  std::shared_ptr<std::byte> arrived_;  ///< partial sums of other ranks
  std::unique_ptr<NcclCommunicator> nccl_;
  Stream communication_;
  Event written_;  ///< end of the writes on the gradients' stream
  Event done_;

  // The GPU counts the steps that have reached their first reduction. Inside a recorded step the host has no
  // other sign that the GPU waits for other ranks.
  std::shared_ptr<std::byte> counter_;       ///< the count as i32, then a 0 as f32: the factor of a good step
  std::shared_ptr<std::byte> counted_here_;  ///< the count as last copied to the host
  int64_t steps_ = 0;                        ///< steps that the host has started
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace

std::unique_ptr<Movement> move_by_nccl(std::shared_ptr<Communicator> communicator, const BucketPlan& buckets,
                                       const ReductionPlan& plan, const Stream& stream, bool gathers_first) {
  return std::make_unique<ByNccl>(std::move(communicator), buckets, plan, stream, gathers_first);
}

}  // namespace lockstep
