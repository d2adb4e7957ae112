// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/keys.h"

#include "lockstep/config/rows.h"

namespace lockstep {

KeyRows<DistOptions> dist_rows() {
  using O = DistOptions;
  constexpr auto semantic = KeyClass::semantic, collective = KeyClass::collective;
  KeyRows<O> rows("dist", "Ranks");
  rows.add(
          "replicas", &O::replicas, semantic, between(0, 1 << 20), "replicas",
          "logical data-parallel workers, each with a batch per step. They fix the bits; the number of ranks "
          "does not. 0: one per rank of the first start")
      .first()
      .open_at("0");
  rows.add("reduction", &O::reduction, {{"tree", Reduction::tree}, {"native", Reduction::native}}, semantic,
           "tree: same bits at any number of ranks; native: the all-reduce of MPI or NCCL");
  rows.add(
          "shard", &O::shard,
          {{name(Shard::none), Shard::none},
           {name(Shard::optimizer), Shard::optimizer},
           {name(Shard::gradients), Shard::gradients},
           {name(Shard::full), Shard::full},
           {"NO_SHARD", Shard::none},
           {"SHARD_GRAD_OP", Shard::gradients},
           {"FULL_SHARD", Shard::full},
           {"HYBRID_SHARD", Shard::hybrid}},
          collective,
          "sharding (same bits, less memory): none; the optimizer's states (ZeRO 1); gradients too (ZeRO 2); "
          "parameters too (ZeRO 3, FSDP). PyTorch's names are accepted")
      .also_called({"sharding_strategy", "zero_stage"});
  rows.add("group", &O::group, collective, between(0, 1 << 20), "ranks",
           "dist.shard = full only: neighbouring ranks that hold all parameters together; 0: all ranks, or "
           "the ranks of a host with HYBRID_SHARD");
  rows.add(
          "offload", &O::offload,
          {{name(Offload::none), Offload::none},
           {name(Offload::optimizer), Offload::optimizer},
           {name(Offload::all), Offload::all}},
          collective,
          "GPU only: optimizer keeps the optimizer's states and fp32 weights in host memory and updates them "
          "there; all keeps all weights there and copies them block by block (same bits, slower)")
      .also_called({"cpu_offload", "optimizer_offload"});
  rows.add("bucket_mib", &O::bucket_mib, collective, above(0), "MiB",
           "size of a bucket: the gradients that are reduced together")
      .also_called({"bucket_cap_mb"});
  rows.add("timeout_s", &O::timeout_s, collective, above(0), "seconds",
           "a rank that does not answer for this long ends the run");
  rows.add("audit_every", &O::audit_every, collective, at_least(0), "steps",
           "every so many steps another rank computes a micro-batch again, to find a processor that computes "
           "wrong (same bits); 0: never");
  return rows;
}

}  // namespace lockstep
