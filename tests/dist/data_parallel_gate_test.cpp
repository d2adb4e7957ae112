// SPDX-License-Identifier: Apache-2.0
// The bits of a run depend only on the replicas and their micro-batches.
#include <cstring>
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/tensor/autograd.h"
#include "tests/dist/momentum.h"
#include "tests/dist/reference_tree.h"
#include "tests/dist/tiny_model.h"

namespace lockstep::data_parallel_gate_test {
namespace {

/// The result of a run. `numbers` has the loss, the norm and the new model's loss on other data for each
/// step. The other fields have the last gradients, the momenta and the values of all elements of the space.
struct Outcome {
  std::vector<float> numbers;
  std::vector<float> gradients, states, values;
};

/// The model of a run, described by its parameters.
struct Kind {
  bool tied = true;
  bool has_frozen = false;
  bool is_small = false;  ///< every unit is one block, so one rank owns all of it
  DType precision = DType::f32;
};

struct Setting {
  Kind kind = {};
  int ranks = 1;
  int threads = 1;
  bool by_owners = true;
  bool is_declared = false;     ///< its parameters have no memory at first
  bool has_equal_seeds = true;  ///< if false, only rank 0's values may count
  DataParallel::Options options;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  const DataParallel::Options& options = setting.options;
  return out << options.replicas << " replicas on " << setting.ranks << " ranks, " << setting.threads
             << " threads, accumulate " << options.accumulate << ", shard " << name(options.shard)
             << " in groups of " << options.group << ", " << setting.kind.precision << ", buckets of "
             << options.bucket_bytes << " bytes, overlap " << options.overlap << ", shared memory "
             << options.shared_memory << (setting.is_declared ? ", declared" : "")
             << (setting.has_equal_seeds ? "" : ", other seeds")
             << (setting.by_owners ? ", step()" : ", wait()");
}

TinyModel model_of(const Kind& kind, uint64_t seed, bool is_declared) {
  TinyModel model(seed, kind.tied, is_declared, kind.is_small ? 50 : 401);
  if (kind.has_frozen) model.bias.set_requires_grad(false);
  return model;
}

float evaluate(const TinyModel& model, int step) {
  const NoGrad no_grad;
  return static_cast<float>(item(model.loss(static_cast<uint64_t>(77 + step))));
}

/// Executes the definition. Each replica runs alone, and its micro-batches are added from left to right. The
/// tree then adds the replicas. One rank computes the norm, clips and updates.
Outcome reference_run(const Kind& kind, int replicas, int accumulate) {
  const TinyModel model = model_of(kind, 0, false);
  ParameterSpace space(model.parameters());
  space.set_precision(kind.precision);
  Momentum optimizer(space);
  const float scale = 1.0f / static_cast<float>(replicas), share = 1.0f / static_cast<float>(accumulate);
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> losses;
    std::vector<std::vector<float>> gradients;  // [replica][element]
    for (int replica = 0; replica < replicas; ++replica) {
      float sum_of_losses = 0.0f;
      std::vector<float> sum;
      for (int micro = 0; micro < accumulate; ++micro) {
        const Tensor loss = model.loss(batch_of(step, replica, micro));
        const float part = loss.data<float>()[0] * share;
        sum_of_losses = micro == 0 ? part : sum_of_losses + part;
        backward(loss, 1.0 / accumulate);
        const std::vector<float> gradient = values_of(space.gradients());
        if (micro == 0) sum = gradient;
        for (size_t i = 0; i < gradient.size() && micro > 0; ++i) sum[i] += gradient[i];
      }
      gradients.push_back(sum);
      losses.push_back(sum_of_losses);
    }
    outcome.numbers.push_back(reference_tree_sum(losses) * scale);
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      std::vector<float> of_replicas;
      for (const auto& gradient : gradients) of_replicas.push_back(gradient[i]);
      space.gradients().data<float>()[i] = reference_tree_sum(of_replicas) * scale;
    }
    const GradientNorm norm = measure_gradient_norm(space, max_norm);
    outcome.numbers.push_back(static_cast<float>(item(norm.norm)));
    optimizer.prepare(learning_rate);
    optimizer.update(norm.factor);
    outcome.numbers.push_back(evaluate(model, step));
  }
  outcome.gradients = values_of(space.gradients());
  outcome.states = values_of(optimizer.states()[0].flat);
  outcome.values = values_of(space.values());
  return outcome;
}

/// Compares bytes, because 0 == -0 and NaN != NaN.
void expect_bits(const float* found, const float* expected, int64_t count, const std::string& what) {
  for (int64_t i = 0; i < count; ++i)
    ASSERT_EQ(std::memcmp(found + i, expected + i, 4), 0)
        << what << " " << i << " is " << found[i] << " instead of " << expected[i];
}

/// Compares some of the elements that this rank keeps.
void expect_bits(const FlatBuffer& found, const Placement& some, const std::vector<float>& expected,
                 const std::string& what) {
  for (const Range& range : some.ranges())
    expect_bits(found.view(range).as<float>(), expected.data() + range.begin, range.size(), what);
}

/// Compares the elements that this rank keeps.
void expect_bits(const FlatBuffer& found, const std::vector<float>& expected, const std::string& what) {
  expect_bits(found, found.placement(), expected, what);
}

void run_step(DataParallel& ddp, ParameterSpace& space, Momentum& optimizer, const TinyModel& model, int step,
              bool by_owners, std::vector<float>& numbers) {
  ddp.begin_step();
  for (const MicroBatch& one : ddp.setup.micro_batches)
    ddp.backward(model.loss(batch_of(step, one.replica, one.index)));
  if (by_owners) {
    ddp.step(optimizer, learning_rate, max_norm);
    numbers.push_back(static_cast<float>(item(ddp.summary.mean_loss())));
    numbers.push_back(static_cast<float>(item(ddp.summary.gradient_norm())));
  } else {
    numbers.push_back(ddp.wait());
    const GradientNorm norm = measure_gradient_norm(space, max_norm);
    numbers.push_back(static_cast<float>(item(norm.norm)));
    optimizer.prepare(learning_rate);
    optimizer.update(norm.factor);
  }
  ddp.together([&] { numbers.push_back(evaluate(model, step)); });
}

/// Runs the setting on ranks that are threads. Compares every rank with the reference.
void expect_outcome(const Setting& setting, const Outcome& expected) {
  run_ranks(setting.ranks, [&](Communicator& communicator) {
    set_threads(setting.threads);
    SCOPED_TRACE(testing::Message() << setting << ", rank " << communicator.rank());
    const auto seed = static_cast<uint64_t>(setting.has_equal_seeds ? 0 : communicator.rank());
    const TinyModel model = model_of(setting.kind, seed, setting.is_declared);
    ParameterSpace space(model.parameters());
    space.set_precision(setting.kind.precision);
    DataParallel ddp(space, World(communicator.shared_from_this()), setting.options);
    Momentum optimizer(space);
    Outcome outcome;
    for (int step = 0; step < steps; ++step)
      run_step(ddp, space, optimizer, model, step, setting.by_owners, outcome.numbers);
    ASSERT_EQ(outcome.numbers.size(), expected.numbers.size());
    expect_bits(outcome.numbers.data(), expected.numbers.data(), std::ssize(expected.numbers), "number");

    const Sharding& sharding = ddp.setup.sharding;
    if (!sharding.cuts_gradients()) ddp.gather_gradients();
    expect_bits(space.gradients(), expected.gradients, "gradient");
    const auto rank = static_cast<size_t>(communicator.rank());
    ddp.place_states(optimizer);
    const FlatBuffer& states = optimizer.states()[0].flat;
    const Placement updates(sharding.updates[rank]);
    expect_bits(states, setting.by_owners ? updates : states.placement(), expected.states, "state");
    expect_bits(space.values(), expected.values, "value");
    for (int unit = 0; unit < static_cast<int>(space.layout.units().size()); ++unit) {
      const Range range = space.layout.units()[static_cast<size_t>(unit)];
      expect_bits(ddp.values.gather(unit).data<float>(), expected.values.data() + range.begin, range.size(),
                  concat("value of unit ", unit));
    }
    // Each rank keeps the elements that its stage of sharding requires.
    EXPECT_EQ(space.values().placement(), Placement(sharding.masters[rank]));
    const Placement whole = Placement::whole(space.layout.trainable_elements());
    EXPECT_EQ(states.placement(), sharding.stage != Shard::none ? updates : whole);
    EXPECT_EQ(space.gradients().placement(), sharding.cuts_gradients() ? updates : whole);
  });
}

/// The runs of one case. Together they cover pairs of settings: they are rows of an orthogonal array of seven
/// columns. Neighbouring cases take opposite halves of the rows.
class Rows {
 public:
  explicit Rows(int case_index) : case_(case_index) {}

  template <class Body>
  void for_each(Body&& body) const {
    for (int i = 0; i < 4; ++i) {
      const int a = i & 1, b = i >> 1, c = (a ^ b ^ case_) & 1;
      body({.threads = 1 + (a & b),
            .by_owners = a == c,
            .is_declared = a == b,
            .has_equal_seeds = c == 0,
            .options = {.accumulate = 1 + (i + case_) % 3,
                        .bucket_bytes = b ? int64_t{1} << 20 : 0,
                        .overlap = a == 1,
                        .shared_memory = b == c}});
    }
  }

 private:
  int case_;
};

struct Cut {
  Shard stage;
  int group;
};

std::vector<Cut> cuts_of(int ranks) {
  if (ranks == 1) return {{Shard::none, 0}, {Shard::full, 0}};
  std::vector<Cut> cuts = {{Shard::none, 0}, {Shard::optimizer, 0}, {Shard::gradients, 0}, {Shard::full, 0}};
  for (const int group : {1, 2, 3})
    if (ranks % group == 0 && group < ranks && group * ranks != 6) cuts.push_back({Shard::full, group});
  return cuts;
}

class DataParallelGate : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, DataParallelGate, testing::Values(1, 3, 12));
INSTANTIATE_TEST_SUITE_P(MoreReplicas, DataParallelGate, testing::Values(7, 8));

TEST_P(DataParallelGate, NeitherRanksNorThreadsBucketsTransportsOrShardsShowInTheBits) {
  const int replicas = GetParam();
  std::vector<Outcome> expected;
  const auto kind_of = [](int accumulate) {
    return Kind{.tied = accumulate < 3, .has_frozen = accumulate == 2, .is_small = accumulate == 3};
  };
  for (const int accumulate : {1, 2, 3})
    expected.push_back(reference_run(kind_of(accumulate), replicas, accumulate));
  int case_index = 0;
  for (const int ranks : {1, 2, 3, 4, 6, 7})
    for (const Cut cut : cuts_of(ranks)) {
      if (ranks > replicas) break;
      Rows(case_index++ + ranks).for_each([&](Setting setting) {
        setting.kind = kind_of(setting.options.accumulate);
        setting.ranks = ranks;
        setting.options.replicas = replicas;
        setting.options.shard = cut.stage;
        setting.options.group = cut.group;
        setting.by_owners |= ranks > 1 && (cut.stage == Shard::gradients || cut.stage == Shard::full);
        expect_outcome(setting, expected[static_cast<size_t>(setting.options.accumulate - 1)]);
      });
    }
}

TEST(DataParallelGateIn16Bits, NeitherRanksNorShardsShowInTheBits) {
  constexpr int replicas = 5;
  int case_index = 0;
  for (const DType precision : {DType::bf16, DType::f16}) {
    const Kind kind{.has_frozen = true, .precision = precision};
    std::vector<Outcome> expected;
    for (const int accumulate : {1, 2, 3}) expected.push_back(reference_run(kind, replicas, accumulate));
    for (const int ranks : {1, 2, 4})
      for (const Cut cut : cuts_of(ranks))
        Rows(case_index++).for_each([&](Setting setting) {
          setting.kind = kind;
          setting.ranks = ranks;
          setting.options.replicas = replicas;
          setting.options.shard = cut.stage;
          setting.options.group = cut.group;
          // If the f32 values are sharded, no rank can update all of them.
          setting.by_owners |= ranks > 1 && cut.stage != Shard::none;
          expect_outcome(setting, expected[static_cast<size_t>(setting.options.accumulate - 1)]);
        });
  }
}

TEST(DataParallelGateOfManyRanks, RanksThatPassOnWhatTheyReceiveDoNotShowInTheBits) {
  constexpr int replicas = 36;
  const Outcome expected = reference_run({}, replicas, 1);
  for (const Cut cut : {Cut{Shard::none, 0}, {Shard::gradients, 0}, {Shard::full, 36}})
    for (const bool by_owners : {false, true})
      if (by_owners || cut.stage == Shard::none)
        expect_outcome({.ranks = replicas,
                        .by_owners = by_owners,
                        .options = {.replicas = replicas,
                                    .shard = cut.stage,
                                    .group = cut.group,
                                    .shared_memory = false}},
                       expected);
}

TEST(DataParallel, TheGateSeesAnotherOrderOfAddition) {
  const TinyModel model;
  std::vector<std::vector<float>> gradients;
  for (int replica = 0; replica < 12; ++replica) {
    backward(model.loss(batch_of(0, replica, 0)));
    gradients.push_back(values_of(model.weight.grad()));
  }
  int different = 0;
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    std::vector<float> of_replicas;
    float left_to_right = 0.0f;
    for (const auto& gradient : gradients) {
      of_replicas.push_back(gradient[i]);
      left_to_right += gradient[i];
    }
    different += reference_tree_sum(of_replicas) != left_to_right;
  }
  EXPECT_GT(different, 10) << "these gradients cannot tell the orders apart";
}

}  // namespace
}  // namespace lockstep::data_parallel_gate_test
