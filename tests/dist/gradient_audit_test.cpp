// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads train a tiny model under audit. One of them flips a bit of some products.
// LOCKSTEP_AUDIT_RUNS and LOCKSTEP_AUDIT_STEPS set how much is run; scripts/check_audit.sh sets more.
#include "lockstep/dist/gradient_audit.h"

#include <bit>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <regex>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/process.h"
#include "lockstep/dist/parameters_hash.h"
#include "lockstep/kernels/matmul.h"
#include "lockstep/tensor/autograd.h"
#include "tests/dist/momentum.h"
#include "tests/dist/tiny_model.h"

namespace lockstep::gradient_audit_test {
namespace {

int from_environment(const char* name, int ordinary) {
  const int number = number_from_environment(name);
  return number > 0 ? number : ordinary;
}

/// A bit that a rank flips in one product of a micro-batch: always, or once in a step.
struct Fault {
  int rank = -1;
  int step = -1;    ///< its index; -1: in all steps
  int product = 0;  ///< among those of a forward and backward that other kernels read; -1: a leaf
  int element = 0;
  int bit = 0;
};

/// Flips the bit in a thread's products. A product that is the gradient of a parameter is read before another
/// kernel calls the observer. So spoil() flips a bit of one.
class Flipper {
 public:
  explicit Flipper(const Fault& fault) : fault_(fault) {
    launch_observer() = [this](const std::type_info& type, const void* kernel) { see(type, kernel); };
  }
  ~Flipper() { launch_observer() = nullptr; }
  Flipper(const Flipper&) = delete;
  Flipper& operator=(const Flipper&) = delete;

  void begin_pass(int step) {
    products_ = 0;
    is_on_ = fault_.step < 0 || (fault_.step == step && !std::exchange(was_on_, true));
  }
  void spoil(const Tensor& gradient) const {
    if (is_on_ && fault_.product < 0)
      reinterpret_cast<uint32_t*>(gradient.data<float>())[fault_.element % gradient.size()] ^= 1U
                                                                                               << fault_.bit;
  }

 private:
  void see(const std::type_info& type, const void* kernel) {
    if (pending_ != nullptr) *std::exchange(pending_, nullptr) ^= 1U << fault_.bit;
    if (type != typeid(MatMul)) return;
    const auto& product = *static_cast<const MatMul*>(kernel);
    if (product.transpose_a || products_++ != fault_.product || !is_on_ || product.c.dtype != DType::f32)
      return;
    pending_ = static_cast<uint32_t*>(product.c.data) + fault_.element % product.c.shape.elements();
  }

  Fault fault_;
  bool is_on_ = false, was_on_ = false;
  int products_ = 0;
  uint32_t* pending_ = nullptr;
};

/// Returns the loss of a model whose last parameter has a gradient that the flipper, if any, spoils.
Tensor loss_of(TinyModel model, uint64_t batch, const Flipper* flipper) {
  const Tensor out = model.out;
  model.out = empty(out.shape(), DType::f32);
  copy(out, model.out);
  model.out = record("copy", model.out, {out}, [flipper](const Tensor& dy) -> Gradients {
    const Tensor dx = empty_like(dy);
    copy(dy, dx);
    if (flipper) flipper->spoil(dx);
    return {dx};
  });
  return model.loss(batch);
}

struct Setting {
  int ranks = 2;
  Shard shard = Shard::none;
  int replicas = 4;
  int accumulate = 1;
  int64_t every = 1;
  DType precision = DType::f32;
  bool overlap = false;
  int64_t width = 401;
  bool is_scaled = false;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.ranks << " ranks, " << name(setting.shard) << ", " << setting.replicas << " x "
             << setting.accumulate << ", every " << setting.every << ", " << setting.precision;
}

struct Outcome {
  std::string failure;  ///< the message of all ranks; empty: the run ended
  int steps = 0;        ///< steps that were applied
  uint64_t hash = 0;    ///< of the parameters
  int records = 0;
};

/// Trains on one rank.
Outcome train_rank(Communicator& communicator, const Setting& setting, const Fault& fault, int steps) {
  const World world(communicator.shared_from_this());
  const TinyModel model(0, true, false, setting.width);
  ParameterSpace space(model.parameters());
  space.set_precision(setting.precision);
  std::optional<GradScaler> scaler;
  if (setting.is_scaled) scaler.emplace(space);
  DataParallel ddp(space, world,
                   {.replicas = setting.replicas,
                    .accumulate = setting.accumulate,
                    .shard = setting.shard,
                    .bucket_bytes = 16384,
                    .overlap = setting.overlap,
                    .scaler = scaler ? &*scaler : nullptr});
  Momentum optimizer(space);
  if (scaler) optimizer.count_on_device();
  Outcome outcome;
  detail::GradientAudit audit(space, ddp, world, setting.every, setting.accumulate,
                              [&](int64_t, const auto&) { ++outcome.records; });
  std::optional<Flipper> flipper;
  if (fault.rank == communicator.rank()) flipper.emplace(fault);
  const auto loss = [&](int step, const MicroBatch& one) {
    if (flipper) flipper->begin_pass(step);
    const uint64_t batch = batch_of(step, one.replica, one.index);
    if (setting.precision != DType::f32) return model.loss(batch);
    return loss_of(model, batch, flipper ? &*flipper : nullptr);
  };
  try {
    for (int step = 0; step < steps; ++step) {
      ddp.begin_step();
      audit.begin(step);
      for (const MicroBatch& one : ddp.setup.micro_batches) audit.backward(loss(step, one));
      const auto again = [&] { return loss(step, audit.plan().of_step(step)->micro_batch); };
      audit.compute_again(again);
      optimizer.prepare(learning_rate);
      ddp.update(optimizer, max_norm, [&] { audit.compare(again); });
      ++outcome.steps;
    }
  } catch (const Error& failure) {
    outcome.failure = failure.what();
    ddp.values.gather(0);  // all ranks are at the same place
  }
  flipper.reset();
  outcome.hash = parameters_hash(space, ddp);
  return outcome;
}

/// Trains on threads. Expects the same outcome on all ranks.
Outcome train(const Setting& setting, const Fault& fault, int steps) {
  std::vector<Outcome> outcomes(static_cast<size_t>(setting.ranks));
  run_ranks(setting.ranks, [&](Communicator& communicator) {
    outcomes[static_cast<size_t>(communicator.rank())] = train_rank(communicator, setting, fault, steps);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.failure, outcomes[0].failure) << setting;
    EXPECT_EQ(outcome.steps, outcomes[0].steps) << setting;
    EXPECT_EQ(outcome.hash, outcomes[0].hash) << setting;
  }
  return outcomes[0];
}

constexpr std::array stages = {Shard::none, Shard::optimizer, Shard::gradients, Shard::full};

/// Returns a fault in one of the products whose result is fp32. Its bit is high enough to change a leaf.
Fault fault_of(std::mt19937& generator, int ranks) {
  const auto draw = [&](int count) { return static_cast<int>(generator() % static_cast<unsigned>(count)); };
  return {.rank = draw(ranks), .product = draw(10) - 1, .element = draw(1 << 20), .bit = 8 + draw(15)};
}

std::string rank_on_host(int rank) { return concat("rank ", rank, " on host ", host_name()); }

TEST(GradientAudit, NamesAPersistentFaultInTime) {
  std::mt19937 generator(11);
  const int runs = from_environment("LOCKSTEP_AUDIT_RUNS", 2);
  int named = 0;
  for (const int ranks : {2, 3, 4})
    for (const Shard shard : stages)
      for (int run = 0; run < runs; ++run) {
        const Setting setting{.ranks = ranks,
                              .shard = shard,
                              .replicas = 4 + run % 2,
                              .accumulate = 1 + run % 3,
                              .every = 1 + run % 2,
                              .overlap = run % 2 == 1,
                              .width = 50};
        const Fault fault = fault_of(generator, ranks);
        SCOPED_TRACE(testing::Message() << setting << ", product " << fault.product << " of rank "
                                        << fault.rank << ", bit " << fault.bit);
        const auto most = static_cast<int>(setting.every * setting.replicas * setting.accumulate);
        const Outcome outcome = train(setting, fault, most);
        EXPECT_LT(outcome.steps, most);
        const std::string pair = rank_on_host(0) + " or " + rank_on_host(1);
        const std::string start = concat("step ", outcome.steps + 1, ": ",
                                         ranks == 2 ? pair : rank_on_host(fault.rank), " computed wrong");
        EXPECT_EQ(outcome.failure.substr(0, start.size()), start);
        const std::regex element(
            "parameter [a-z]+, element \\[[0-9, ]+\\]: 0x[0-9a-f]{8} on rank [0-3], 0x[0-9a-f]{8} on rank "
            "[0-3]\\.");
        EXPECT_TRUE(std::regex_search(outcome.failure, element)) << outcome.failure;
        EXPECT_EQ(outcome.records, 1);
        // The failing step has changed nothing.
        EXPECT_EQ(outcome.hash, train(setting, fault, outcome.steps).hash);
        named += outcome.failure.starts_with(start) ? 1 : 0;
      }
  RecordProperty("named", named);
  if (runs > 2) std::cout << named << " of " << 12 * runs << " persistent faults were named in time\n";
}

TEST(GradientAudit, NamesATransientFaultOfAnAuditedStepOnly) {
  std::mt19937 generator(12);
  for (const int ranks : {2, 3})
    for (const Shard shard : stages) {
      const Setting setting{.ranks = ranks, .shard = shard, .replicas = ranks, .every = 2, .width = 50};
      // Step 6, the third audit, takes micro-batch 1 or 0, which is the owner's only one.
      Fault fault = fault_of(generator, ranks);
      fault.step = 5;
      fault.rank = 3 % ranks;
      const Outcome outcome = train(setting, fault, 7);
      const std::string start = concat("step 6: ", rank_on_host(fault.rank), " computed wrong gradients");
      EXPECT_EQ(outcome.failure.substr(0, start.size()), start);
      EXPECT_NE(outcome.failure.find("It computed others when they were computed again"), std::string::npos);
      EXPECT_NE(outcome.failure.find(", among elements ["), std::string::npos) << outcome.failure;
      fault.step = 4;
      EXPECT_EQ(train(setting, fault, 7).failure, "");
    }
}

TEST(GradientAudit, ChangesNoBit) {
  int row = 0;
  for (const DType precision : {DType::f32, DType::bf16, DType::f16})
    for (const int accumulate : {1, 2, 3})
      for (const Shard shard : stages) {
        Setting setting{.ranks = 2 + row++ % 3,
                        .shard = shard,
                        .replicas = 5,
                        .accumulate = accumulate,
                        .every = 0,
                        .precision = precision,
                        .overlap = row % 2 == 0,
                        .is_scaled = precision == DType::f16};
        const Outcome plain = train(setting, {}, 6);
        setting.every = 1;
        const Outcome audited = train(setting, {}, 6);
        EXPECT_EQ(audited.failure, "") << setting;
        EXPECT_EQ(audited.hash, plain.hash) << setting;
      }
}

TEST(GradientAudit, GivesNoFalseAlarm) {
  const int steps = from_environment("LOCKSTEP_AUDIT_STEPS", 160);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const Setting setting{.ranks = 2 + static_cast<int>(stage) % 2,
                          .shard = stages[stage],
                          .replicas = 3,
                          .accumulate = 1 + static_cast<int>(stage) / 2,
                          .overlap = stage == 1,
                          .width = 20};
    const Outcome outcome = train(setting, {}, steps / 4);
    EXPECT_EQ(outcome.failure, "");
    EXPECT_EQ(outcome.steps, steps / 4);
  }
}

TEST(GradientHashes, TakeAllNansForEqualAndDistinguishZeros) {
  const Tensor leaf = parameter({2});
  const ParameterSpace space(std::vector<NamedTensor>{{"leaf", leaf}});
  const auto hash = [&](uint32_t first) {
    const Tensor gradient = zeros({2});
    std::memcpy(gradient.data<float>(), &first, 4);
    detail::GradientHashes hashes(space.layout);
    hashes.add(0, gradient);
    return hashes.value();
  };
  EXPECT_EQ(hash(0x7fc00000U), hash(0xffc00001U));
  EXPECT_NE(hash(0x7fc00000U), hash(0x7f800000U));
  EXPECT_NE(hash(0x00000000U), hash(0x80000000U));
}

}  // namespace
}  // namespace lockstep::gradient_audit_test
