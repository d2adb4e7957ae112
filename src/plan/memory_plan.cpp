// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/memory_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sys/resource.h>
#include <utility>

#include "lockstep/comm/memory_limit.h"
#include "lockstep/models/family.h"
#include "lockstep/movement/bucket_plan.h"
#include "lockstep/movement/reduction_plan.h"
#include "lockstep/movement/sharding.h"
#include "lockstep/plan/rehearsal.h"

namespace lockstep {
namespace {

/// Returns the key that exceeds its ordinary value most. Such a key is mistyped or set too high.
std::string dominant(const std::vector<SizeKey>& keys) {
  const auto excess = [](const SizeKey& key) {
    return static_cast<double>(key.value) / static_cast<double>(key.ordinary);
  };
  return std::ranges::max_element(keys, {}, excess)->key;
}

/// The keys to blame for memory that grows with the model or with the batch.
struct Blame {
  explicit Blame(const Job& job) {
    const Family& family = family_of(job.model);
    const ModelOptions ordinary = family.ordinary();
    const SizeKey vocabulary{"model.vocab_size", job.model.vocab_size, ordinary.vocab_size};
    const SizeKey block{"data.block_size", job.text.block_size, ordinary.n_positions};
    const SizeKey batch{"train.batch_size", job.micro_batch(), 64};
    std::vector<SizeKey> keys = {{"model.n_embd", job.model.n_embd, ordinary.n_embd},
                                 {"model.n_layer", job.model.n_layer, ordinary.n_layer}};
    const std::vector<SizeKey> own = family.own_sizes(job.model);
    keys.insert(keys.end(), own.begin(), own.end());
    const auto dominant_with = [&keys](std::vector<SizeKey> more) {
      more.insert(more.end(), keys.begin(), keys.end());
      return dominant(more);
    };
    activations = dominant_with({batch, block});
    backward = dominant_with({batch, block, vocabulary});
    keys.insert(keys.end(), {vocabulary, block});
    model = dominant(keys);
    logits = dominant({batch, block, vocabulary});
    in_pieces = job.compute.logit_rows > 0;
  }
  MemoryRow row(const std::string& name, double bytes) const {
    const std::string shorter = "lower it, or raise train.accumulate";
    if (name == "activations") return {name, bytes, activations, shorter};
    if (name == "backward") return {name, bytes, backward, shorter};
    if (name == "logits")
      return {name, bytes, logits,
              in_pieces ? "lower train.logit_rows" : shorter + ", or set train.logit_rows"};
    if (name == "batches" || name == "validation") return {name, bytes, "train.batch_size", shorter};
    if (name == "ids of the text")
      return {name, bytes, "data.dataset", "make the cache folder writable, which keeps ids in a file"};
    if (name == "order of samples") return {name, bytes, "data.dataset", "use a smaller data set"};
    if (name == "snapshot") return {name, bytes, model, "train a smaller model, or set snapshot.path=none"};
    return {name, bytes, model, "train a smaller model"};
  }

  std::string model, activations, backward, logits;
  bool in_pieces = false;
};

/// Returns the unused part of the mapped memory: the heap, and stacks of threads that a training starts.
double stacks_of_threads() {
  constexpr double threads = 3;  // the loader, the reduction and a snapshot
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  constexpr double heap = 8 << 20;  // allocations smaller than a page, and memory that the C library keeps
  return heap + threads * (is_known ? static_cast<double>(limit.rlim_cur) : 2097152.0);
}

/// A builder of a rank's rows: its own memory, and memory that ranks of a host share.
class Builder {
 public:
  Builder(const Job& job, const PlannedRanks& place, const Rehearsal& rehearsal)
      : job_(job),
        place_(place),
        rehearsal_(rehearsal),
        blame_(job),
        reduction_(std::max(job.dist.replicas, place.ranks), 1, place.ranks, 0, Execution::ranges, false),
        on_gpu_(gpu_of(current_stream()) >= 0),
        shares_(!on_gpu_ && !rehearsal.is_sharded && place.ranks > 1 && place.ranks == place.ranks_of_host &&
                job.dist.reduction == Reduction::tree) {
    for (const auto& [label, bytes] : rehearsal.memory.used_by_label)
      left_[label] = static_cast<double>(bytes);
  }

  MemoryPlan build() {
    if (!on_gpu_) add("program and MPI", place_.program.resident - place_.ids);
    if (!on_gpu_ && place_.ids > 0) add("ids of the text", place_.ids);
    if (!on_gpu_) add("order of samples", static_cast<double>(rehearsal_.order_bytes));
    if (rehearsal_.is_sharded) {
      add_parts();
    } else {
      add_weights();
      add_gradients();
      add_states();
    }
    for (const char* name : {"batches", "activations", "logits", "backward", "validation", "sample text"})
      add(name, take(name));
    // Ranks of one host write to one disk, each its part. Otherwise rank 0 may have to write everything.
    const bool all_write = place_.ranks == place_.ranks_of_host || place_.writes_together;
    const double copied = copy_for_snapshot();
    const double snapshot = copied / (all_write ? place_.ranks : 1);
    if (!on_gpu_) add("snapshot", snapshot);
    // Blocks are rounded up. On a CPU their ends are never touched; on a GPU they are taken.
    const auto rounding = static_cast<double>(rehearsal_.memory.mapped_bytes - rehearsal_.memory.used_bytes);
    for (const auto& [label, bytes] : left_) other_ += bytes;
    add_others(on_gpu_ ? other_ + rounding : other_);
    const double own = plan_.peak - shared_touched_;
    plan_.mapped = own + rounding + shared_mapped_ + place_.program.mapped - place_.program.resident +
                   stacks_of_threads();
    const double without_copies = all_write ? 0 : (place_.ranks_of_host - 1) * snapshot;
    plan_.on_host = on_gpu_ ? place_.program.resident + static_cast<double>(rehearsal_.order_bytes) +
                                  static_cast<double>(rehearsal_.on_host.used_bytes) - copied + snapshot
                            : 0;
    plan_.host = place_.ranks_of_host * (on_gpu_ ? plan_.on_host : own) - without_copies + plan_.shared;
    plan_.uses = rehearsal_.uses;
    plan_.blocks = static_cast<double>(rehearsal_.memory.mapped_bytes);
    return plan_;
  }

 private:
  double take(const std::string& label) { return std::exchange(left_[label], 0.0); }
  /// Takes the copy of all tensors for a snapshot. With a GPU it is on the host.
  double copy_for_snapshot() {
    if (!on_gpu_) return take("snapshot");
    const auto& labels = rehearsal_.on_host.used_by_label;
    const auto found = labels.find("snapshot");
    return found == labels.end() ? 0.0 : static_cast<double>(found->second);
  }
  void add(const std::string& name, double bytes, bool shared = false) {
    plan_.rows.push_back(blame_.row(name, bytes));
    plan_.peak += bytes;
    if (shared) shared_touched_ += bytes;
  }
  /// Adds the row "other". It also receives the rows that are too small.
  void add_others(double bytes) {
    // A block that the activations have left may serve the optimizer from then on. Then both rows have it.
    for (MemoryRow& row : plan_.rows) {
      if (row.name != "activations" && row.name != "logits" && row.name != "backward") continue;
      const double twice = std::clamp(-bytes, 0.0, row.bytes);
      row.bytes -= twice;
      plan_.peak -= twice;
      bytes += twice;
    }
    add("other", bytes);
    const double least = 0.001 * plan_.peak;
    for (const MemoryRow& row : plan_.rows)
      if (row.bytes < least && row.name != "other") plan_.rows.back().bytes += row.bytes;
    std::erase_if(plan_.rows, [&](const MemoryRow& row) { return row.bytes < least && row.name != "other"; });
  }
  /// Counts a shared block of each rank. This rank touches its own block and a part of the others.
  void share_blocks(double bytes) {
    plan_.shared += place_.ranks * bytes;
    shared_mapped_ += place_.ranks * bytes;
  }

  /// Adds rank 0's rows of a sharded or offloaded training, as rehearsed. The rank releases other ranks'
  /// memory after it has read it, gradients bucket by bucket.
  void add_parts() {
    const auto shared = static_cast<double>(rehearsal_.shared_bytes);
    add("weights", take("parameters"));
    add("gathered weights", take("gathered values"));
    const auto trainable = static_cast<double>(rehearsal_.trainable);
    // Rounds that were not rehearsed need further slots, or further partial sums if gradients are sharded.
    const int slots = rehearsal_.cuts_gradients ? 1 : reduction_.slots;
    const double missing = rehearsal_.cuts_gradients
                               ? std::ceil(rehearsal_.missing_levels) * 4.0 * trainable / place_.ranks
                               : (slots - rehearsal_.slots) * 4.0 * (trainable + BucketPlan::reserved);
    add("gradients", take("gradients") + missing);
    add("ranges of other ranks", slots * static_cast<double>(rehearsal_.foreign_bytes), true);
    add("optimizer", take("optimizer"));
    const double all_shared = shared > 0 && !rehearsal_.cuts_gradients ? shared + missing : shared;
    shared_touched_ += all_shared;
    plan_.shared = place_.ranks * all_shared;
    shared_mapped_ = place_.ranks * all_shared;
  }

  void add_weights() {
    const double values = 4.0 * static_cast<double>(rehearsal_.elements);
    const auto copies = static_cast<double>(rehearsal_.copy_bytes);
    add("weights", values, shares_);
    add("copies in 16 bits", copies);
    other_ += take("parameters") - values - copies;
    if (shares_) share_blocks(values);
  }

  void add_gradients() {
    const double ranks = place_.ranks;
    const double slot = 4.0 * static_cast<double>(rehearsal_.trainable + BucketPlan::reserved);
    const double summary = take("gradients") - slot;  // squares of blocks, in the step summary
    const double of_rank = slot * reduction_.slots + summary;
    add("gradients", of_rank, shares_);
    add("gradients between rounds", slot * reduction_.partial_sums / ranks);
    const double foreign = (ranks - 1) / ranks;
    // In place, a rank reads its ranges in other ranks' slots, and their ranges of the values. Messages
    // arrive bucket by bucket.
    const double bucket = std::min(slot, job_.dist.bucket_mib * 1048576.0);
    add("ranges of other ranks",
        foreign * reduction_.slots *
                (shares_   ? slot
                 : on_gpu_ ? 0
                           : bucket) +
            (shares_ ? foreign * slot : 0),
        shares_);
    if (shares_) share_blocks(of_rank);
  }

  /// Adds the optimizer's states. Shared states are in one block, and a rank touches its owned ranges of it.
  void add_states() {
    const double all = 4.0 * static_cast<double>(rehearsal_.states * rehearsal_.trainable);
    add("optimizer", shares_ ? all / place_.ranks : all, shares_);
    other_ += take("optimizer") - all;
    if (!shares_) return;
    plan_.shared += all;
    // Before the first step each rank also has states of its own.
    const double later = left_["activations"] + left_["logits"] + left_["backward"];
    shared_mapped_ += all + std::max(0.0, all - later);
  }

  const Job& job_;
  const PlannedRanks& place_;
  const Rehearsal& rehearsal_;
  Blame blame_;
  ReductionPlan reduction_;
  bool on_gpu_;
  bool shares_;
  std::map<std::string, double> left_;  ///< [label], bytes that are in no row yet
  double other_ = 0;
  double shared_touched_ = 0, shared_mapped_ = 0;
  MemoryPlan plan_;
};

}  // namespace

PlannedRanks planned_ranks(const World& world, int64_t id_bytes) {
  PlannedRanks place{.ranks = world.size(), .ranks_of_host = world.local_size()};
  place.program = process_memory();
  place.ids = static_cast<double>(id_bytes);
  const std::array mine = {place.program.resident, place.program.mapped, place.ids};
  for (const auto& [resident, mapped, ids] : world.communicator().all_gather_value(mine)) {
    place.program.resident = std::max(place.program.resident, resident);
    place.program.mapped = std::max(place.program.mapped, mapped);
    place.ids = std::max(place.ids, ids);
  }
  return place;
}

MemoryPlan plan_memory(const Job& job, const PlannedRanks& place, const MakeTask& make) {
  return Builder(job, place, rehearse(job, place, make)).build();
}

MemoryPlan plan_memory(const std::function<void()>& steps) {
  const DryRun dry;
  steps();
  MemoryPlan plan;
  plan.uses = dry.table();
  for (const auto& [label, bytes] : dry.peak().used_by_label)
    plan.rows.push_back({label, static_cast<double>(bytes)});
  plan.peak = plan.host = static_cast<double>(dry.peak().used_bytes);
  plan.mapped = plan.blocks = static_cast<double>(dry.peak().mapped_bytes);
  return plan;
}

}  // namespace lockstep
