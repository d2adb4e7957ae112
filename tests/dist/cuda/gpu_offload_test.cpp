// SPDX-License-Identifier: Apache-2.0
// Offload: data of a GPU that is stored in host memory.
#include "dist/cuda/gpu_training.h"
#include "lockstep/parameters/host_update.h"

namespace lockstep {
namespace {

class GpuOffload : public GpuDataParallel {};

TEST_F(GpuOffload, WhatLiesOnTheHostIsUpdatedThereWithTheSameBits) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    const Outcome expected = of_one_rank(5, 2, precision);
    for (const int ranks : {1, precision == DType::f32 ? 4 : 2})
      for (const Transport transport : transports_for(ranks))
        for (const Offload offload : {Offload::optimizer, Offload::all})
          for (const Cut cut : cuts_of(ranks)) {
            if (offload == Offload::all && cut.stage != Shard::none) continue;  // `all` always shards fully
            expect_outcome({.ranks = ranks,
                            .precision = precision,
                            .options = {.replicas = 5,
                                        .accumulate = 2,
                                        .shard = cut.stage,
                                        .group = cut.group,
                                        .offload = offload,
                                        .bucket_bytes = 33000,
                                        .transport = transport}},
                           expected);
          }
  }
}

TEST_F(GpuOffload, UnitsFromTheHostArriveInEveryOrderThatTheirEventsAllow) {
  const Outcome expected = of_one_rank(2, 1);
  for_each_schedule([&] {
    for (const Offload offload : {Offload::optimizer, Offload::all})
      expect_outcome({.options = {.replicas = 2, .offload = offload, .bucket_bytes = 0}}, expected);
  });
}

TEST_F(GpuOffload, OnlyTheDeviceHoldsWhatIsNotOffloaded) {
  for (const Offload offload : {Offload::none, Offload::optimizer, Offload::all})
    run_gpu_ranks(1, [&](Communicator& communicator, const Stream&) {
      const Model model;
      std::vector<NamedTensor> parameters = model.parameters;
      parameters.push_back({"frozen", full({300}, 2.5)});
      ParameterSpace space(parameters);
      DataParallel ddp(space, World(communicator.shared_from_this()), {.offload = offload});
      Momentum optimizer(space);
      ddp.place_states(optimizer);
      ddp.begin_step();
      EXPECT_EQ(numbers(add(parameters.back().tensor, zeros({300}))), std::vector<float>(300, 2.5f));
      EXPECT_EQ(ddp.setup.offload, offload);
      EXPECT_EQ(ddp.setup.is_capturable, offload == Offload::none);
      EXPECT_EQ(space.values.are_offloaded(), offload != Offload::none);
      const Device kept = offload == Offload::none ? Device::cuda : Device::cpu;
      EXPECT_EQ(device_of(space.values().memory().stream()), kept);
      EXPECT_EQ(device_of(optimizer.states()[0].flat.memory().stream()), kept);
      EXPECT_EQ(static_cast<bool>(space.copies()), offload == Offload::optimizer)
          << "operations must read copies";
      if (space.copies()) {
        EXPECT_EQ(device_of(space.copies().memory().stream()), Device::cuda);
      }
    });
}

TEST_F(GpuOffload, PiecesOfAnUpdateOnTheHostMeetTheirGradients) {
  for_each_schedule([&] {
    run_gpu_ranks(1, [&](Communicator& communicator, const Stream&) {
      const Model model;
      ParameterSpace space(model.parameters);
      const DataParallel ddp(space, World(communicator.shared_from_this()), {.offload = Offload::optimizer});
      const int64_t elements = space.layout.trainable_elements();
      std::vector<float> expected = numbers(space.copies()), given;
      for (int64_t i = 0; i < elements; ++i) given.push_back(static_cast<float>(i));
      const Tensor gradients = empty({elements});
      copy(from_values(given, {elements}), gradients);
      space.gradients.bind(gradients);
      const std::vector<Range> ranges = {{3, 10}, {100, 8000}, {8200, elements}};
      for (const Range& range : ranges)
        for (int64_t i = range.begin; i < range.end; ++i)
          expected[static_cast<size_t>(i)] = static_cast<float>(2 * i);
      HostUpdate update(space, 1000);
      update.run(ranges, [](std::span<const Range> piece, const FlatBuffer& from, const FlatBuffer& to) {
        EXPECT_LE(from.size(), 1000);
        for (const Range& range : piece)
          for (int64_t i = 0; i < range.size(); ++i)
            to.part(range).data<float>()[i] = 2 * from.part(range).data<float>()[i];
      });
      EXPECT_EQ(numbers(space.copies()), expected);
    });
  });
}

TEST_F(GpuOffload, ASkippedUpdateOnTheHostChangesNothing) {
  for (const Offload offload : {Offload::optimizer, Offload::all})
    run_gpu_ranks(1, [&](Communicator& communicator, const Stream&) {
      const Model model;
      ParameterSpace space(model.parameters);
      DataParallel ddp(space, World(communicator.shared_from_this()), {.offload = offload});
      Momentum optimizer(space);
      const std::vector<float> before = gather_values(ddp, space);
      const Tensor values = full({static_cast<int64_t>(values_of(0, 0, 0).size())}, INFINITY);
      const auto seen_by_a_forward = [&] {
        ddp.begin_step();
        model.loss(values);
        ddp.backward(model.loss(values));
        return numbers(model.seen[0]);
      };
      const std::vector<float> seen = seen_by_a_forward();
      ddp.step(optimizer, 0.25, 1.0);
      EXPECT_EQ(gather_values(ddp, space), before);
      EXPECT_EQ(seen_by_a_forward(), seen);
    });
}

}  // namespace
}  // namespace lockstep
