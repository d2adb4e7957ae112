// SPDX-License-Identifier: Apache-2.0
#include "allreduce.h"
#include "lockstep/comm/nccl_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/text.h"
#include "lockstep/dist/gradient_reducer.h"
#include "report.h"

namespace lockstep {
namespace {

/// A method whose `count` values are stored in GPU memory.
AllReduceMethod method_on(std::byte* memory, int64_t count, const Stream& stream) {
  const int64_t bytes = count * 4;
  return {.write =
              [=](const std::vector<float>& values) {
                copy_bytes(memory, stream, values.data(), cpu_stream(), bytes);
              },
          .read =
              [=] {
                std::vector<float> values(static_cast<size_t>(count));
                copy_bytes(values.data(), cpu_stream(), memory, stream, bytes);
                return values;
              },
          .reduce = {},
          .finish = [=] { synchronize(stream); }};
}

/// Adds the columns of nccl-tests for one method. They are us, spread, algbw, busbw and wrong values.
void add_cells(std::vector<std::string>& cells, int64_t bytes, int ranks, const Timing& timing,
               int64_t wrong) {
  const double bandwidth = static_cast<double>(bytes) / timing.seconds * 1e-9;
  for (const std::string& cell :
       {fixed_text(timing.seconds * 1e6, 1), fixed_text(timing.spread_percent, 0), fixed_text(bandwidth, 3),
        fixed_text(bandwidth * 2.0 * (ranks - 1) / ranks, 3), concat(wrong)})
    cells.push_back(cell);
}

std::vector<std::string> row_of(int64_t bytes, const AllReduceOptions& options, const World& world,
                                Transport transport, NcclCommunicator* nccl, const Stream& stream) {
  Communicator& communicator = world.communicator();
  const int64_t count = bytes / 4;
  GradientReducer tree(world.shared_communicator(), one_bucket(count, world.size()), {.transport = transport},
                       stream);
  std::vector<AllReduceMethod> methods = {method_on(tree.storage()->data.get(), count, stream)};
  methods[0].scale = 1.0f / static_cast<float>(world.size());
  methods[0].reduce = [&] {
    tree.begin(0);
    tree.complete(0, 0);
    tree.finish(true);
  };
  std::shared_ptr<std::byte> for_nccl;
  if (nccl != nullptr) {
    for_nccl = nccl->allocate(bytes, stream);
    methods.push_back(method_on(for_nccl.get(), count, stream));
    methods[1].reduce = [&] { nccl->all_reduce(reinterpret_cast<float*>(for_nccl.get()), count, stream); };
  }
  std::vector<int64_t> wrong;
  for (const AllReduceMethod& method : methods) wrong.push_back(wrong_values(method, count, communicator));
  const std::vector<Timing> timings = times_of(methods, count, options.samples, communicator);
  std::vector<std::string> cells = {name(transport), concat(bytes), concat(count)};
  for (size_t i = 0; i < methods.size(); ++i) add_cells(cells, bytes, world.size(), timings[i], wrong[i]);
  if (nccl == nullptr) cells.insert(cells.end(), 5, "-");
  return cells;
}

}  // namespace

void bench_all_reduce_on_gpus(const AllReduceOptions& options, const World& world) {
  const int device = world.gpu();
  const Stream stream = make_gpu_stream(device);
  set_current_stream(stream);
  const Transport transport =
      detail::choose_transport(detail::gather_transport_facts(world.communicator(), device));
  const auto nccl = transport == Transport::nccl ? connect_nccl(world.communicator(), device) : nullptr;
  Report report("bench_allreduce",
                {{"path", 8},
                 {"bytes", 11},
                 {"count", 10},
                 {"tree_us"},
                 {"spread", 7},
                 {"algbw_gb_s", 11},
                 {"busbw_gb_s", 11},
                 {"wrong", 6},
                 {"nccl_us"},
                 {"nccl_spread", 12},
                 {"nccl_algbw_gb_s", 16},
                 {"nccl_busbw_gb_s", 16},
                 {"nccl_wrong", 11}},
                {.ranks = world.size(), .threads = 1}, world.is_first());
  for (int64_t bytes = options.min_bytes / 64 * 64; bytes <= options.max_bytes; bytes *= 2)
    report.add(row_of(bytes, options, world, transport, nccl.get(), stream));
  if (options.append) report.append();
}

}  // namespace lockstep
