// SPDX-License-Identifier: Apache-2.0
// Data parallelism on GPUs, with every transport and at every stage of sharding. Steps run recorded and
// unrecorded.
#include "dist/cuda/gpu_training.h"

namespace lockstep {
namespace {

TEST_F(GpuDataParallel, LossesGradientsAndUpdatesAreThoseOfTheDefinition) {
  for (const auto& [replicas, accumulate] : {std::pair(1, 3), {3, 1}, {7, 2}}) {
    const Outcome expected = of_one_rank(replicas, accumulate);
    for (int ranks = 1; ranks <= std::min(replicas, most_ranks); ++ranks)
      for (const Transport transport : transports_for(ranks))
        for (const Cut cut : cuts_of(ranks))
          expect_outcome({.ranks = ranks,
                          .by_owners = cut.stage != Shard::none || accumulate == 2,
                          .options = {.replicas = replicas,
                                      .accumulate = accumulate,
                                      .shard = cut.stage,
                                      .group = cut.group,
                                      .bucket_bytes = 33000,
                                      .transport = transport}},
                         expected);
  }
}

TEST_F(GpuDataParallel, ARecordedStepGivesTheSameBitsInEveryOrderThatItsEventsAllow) {
  const Outcome expected = of_one_rank(4, 1);
  for_each_schedule([&] {
    for (int ranks = 1; ranks <= most_ranks; ++ranks)
      for (const Transport transport : transports_for(ranks))
        for (const Cut cut : cuts_of(ranks))
          if (transport != Transport::staged)
            expect_outcome({.ranks = ranks,
                            .is_recorded = true,
                            .by_owners = cut.stage != Shard::none || ranks != 2,
                            .options = {.replicas = 4,
                                        .shard = cut.stage,
                                        .group = cut.group,
                                        .bucket_bytes = 0,
                                        .transport = transport}},
                           expected);
  });
}

TEST_F(GpuDataParallel, GroupsOfRanksKeepTheModelBetweenThem) {
  constexpr int ranks = 4;
  const Outcome expected = of_one_rank(5, 2);
  for (const Transport transport : transports_for(ranks))
    expect_outcome({.ranks = ranks,
                    .is_recorded = transport == Transport::nccl,
                    .options = {.replicas = 5,
                                .accumulate = 2,
                                .shard = Shard::full,
                                .group = 2,
                                .bucket_bytes = 0,
                                .transport = transport}},
                   expected);
}

TEST_F(GpuDataParallel, CopiesIn16BitsAreGatheredInTheirPlace) {
  const Outcome expected = of_one_rank(3, 2, DType::bf16);
  for (const Transport transport : transports_for(2))
    for (const Cut cut : cuts_of(2))
      expect_outcome({.ranks = 2,
                      .is_recorded = transport == Transport::nccl,
                      .precision = DType::bf16,
                      .options = {.replicas = 3,
                                  .accumulate = 2,
                                  .shard = cut.stage,
                                  .group = cut.group,
                                  .transport = transport}},
                     expected);
}

TEST_F(GpuDataParallel, RankZerosValuesReachAllAndCopiesFollowUpdates) {
  for (const Transport transport : transports_for(2))
    run_gpu_ranks(2, [&](Communicator& communicator, const Stream&) {
      const Model model;
      for (const NamedTensor& parameter : model.parameters) fill(parameter.tensor, 1.0 + communicator.rank());
      ParameterSpace space(model.parameters);
      DataParallel ddp(space, World(communicator.shared_from_this()), {.transport = transport});
      for (const NamedTensor& parameter : model.parameters)
        for (const float value : numbers(parameter.tensor)) ASSERT_EQ(value, 1.0f);
      space.set_precision(DType::bf16);
      Momentum optimizer(space);
      ddp.backward(model.loss(full({static_cast<int64_t>(values_of(0, 0, 0).size())}, 1.0)));
      ddp.step(optimizer, 0.25);
      EXPECT_EQ(numbers(space.copies()), numbers(convert(space.values(), DType::bf16)));
      EXPECT_EQ(numbers(model.parameters[2].tensor)[0], 0.75f);
    });
}

TEST_F(GpuDataParallel, AnUnusedParameterIsNamed) {
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream&) {
    const Model model;
    std::vector<NamedTensor> parameters = model.parameters;
    parameters.push_back({"decoder.forgotten", zeros({4}).set_requires_grad()});
    ParameterSpace space(parameters);
    DataParallel ddp(space, World(communicator.shared_from_this()), {});
    const Tensor values = full({static_cast<int64_t>(values_of(0, 0, 0).size())}, 1.0);
    try {
      ddp.backward(model.loss(values));
      FAIL() << "nothing was thrown";
    } catch (const Error& failure) {
      EXPECT_NE(std::string(failure.what()).find("decoder.forgotten"), std::string::npos) << failure.what();
    }
  });
}

}  // namespace
}  // namespace lockstep
