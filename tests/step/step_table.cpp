// SPDX-License-Identifier: Apache-2.0
#include "step/step_table.h"

#include <algorithm>

#include "lockstep/core/text.h"

namespace lockstep {
namespace {

void add(StepSum& sum, const StepLaunch& launch, double seconds) {
  ++sum.launches;
  sum.cost += launch.cost;
  sum.seconds += seconds;
}

bool is_equal(const StepLaunch& a, const StepLaunch& b) {
  return a.label == b.label && a.kernel == b.kernel && a.is_in_graph == b.is_in_graph &&
         a.cost.bytes == b.cost.bytes && a.cost.flops == b.cost.flops;
}

}  // namespace

StepTable::StepTable(const std::vector<StepLaunch>& launches, const Rates& rates) {
  for (const StepLaunch& launch : launches) {
    const double seconds =
        std::max(launch.cost.bytes / rates.bytes_per_second, launch.cost.flops / rates.flops_of(launch.part));
    auto row = std::ranges::find_if(rows_, [&](const auto& one) { return is_equal(one.launch, launch); });
    if (row == rows_.end()) row = rows_.insert(row, {.launch = launch, .seconds = seconds});
    ++row->count;
    add(sums_[static_cast<size_t>(launch.part)], launch, seconds);
    add(sum_, launch, seconds);
  }
}

namespace {

/// A state of the code and its figures, for the history on the page.
struct State {
  const char* what;
  int launches;
  double gigabytes;
  double milliseconds;
};
constexpr State earlier[] = {
    {"before this table existed", 354, 156.45, 104.09},
    {"layer norm sums the gradients of the projections' biases", 330, 154.19, 103.42},
    {"a step's results are copied in fewer pieces", 325, 154.19, 103.42},
    {"attention's kernel of queries computes the dots", 313, 152.94, 102.69},
};

std::string history(const StepSum& now) {
  std::string rows = "| state | launches | GB | bound in ms |\n|---|---|---|---|\n";
  for (const State& state : earlier)
    rows += concat("| ", state.what, " | ", state.launches, " | ", fixed_text(state.gigabytes, 2), " | ",
                   fixed_text(state.milliseconds, 2), " |\n");
  return rows + concat("| now | ", now.launches, " | ", fixed_text(now.cost.bytes * 1e-9, 2), " | ",
                       fixed_text(now.seconds * 1e3, 2), " |\n");
}

std::string sums(const StepTable& table) {
  std::string rows = "| part | launches | GB | TFLOP | bound in ms |\n|---|---|---|---|---|\n";
  const auto row = [&](const char* name, const StepSum& sum) {
    rows += concat("| ", name, " | ", sum.launches, " | ", fixed_text(sum.cost.bytes * 1e-9, 2), " | ",
                   fixed_text(sum.cost.flops * 1e-12, 2), " | ", fixed_text(sum.seconds * 1e3, 2), " |\n");
  };
  for (int part = 0; part < parts; ++part)
    row(name(static_cast<Part>(part)), table.sum_of(static_cast<Part>(part)));
  row("**all**", table.sum());
  return rows;
}

std::string launches(const StepTable& table, bool in_graph) {
  std::string rows =
      "| launches | computes | kernel | MB | GFLOP | µs | ms in all |\n|---|---|---|---|---|---|---|\n";
  for (const auto& [launch, count, seconds] : table.rows())
    if (launch.is_in_graph == in_graph)
      rows += concat("| ", count, " | ", launch.label, " | ", launch.is_of_library ? "" : "`", launch.kernel,
                     launch.is_of_library ? "" : "`", " | ", fixed_text(launch.cost.bytes * 1e-6, 1), " | ",
                     launch.cost.flops > 0 ? fixed_text(launch.cost.flops * 1e-9, 1) : "", " | ",
                     fixed_text(seconds * 1e6, 1), " | ", fixed_text(seconds * count * 1e3, 2), " |\n");
  return rows;
}

std::string assumptions(const Rates& rates) {
  return concat("- Memory moves ", fixed_text(rates.bytes_per_second * 1e-12, 2), " TB/s. Products run at ",
                fixed_text(rates.product_flops * 1e-12, 0), " TFLOP/s, of a peak of 989. Attention runs at ",
                fixed_text(rates.attention_flops * 1e-12, 0),
                R"(, on the
  assumption that `mma.sync` reaches 62 % of the peak.
- Other kernels are bound by memory. Gaps between launches are not part of the bound. In a graph they are about 1 µs each.
- Every operand moves once for each kernel that reads or writes it. The second-level cache keeps the keys and values of a head,
  and nothing between two kernels.
- Masked scores of attention cost nothing. The whole tiles on the diagonal add 3 to 6 % to its operations.
- cuBLASLt fuses bias and GELU. It sums columns in a kernel of its own, as an H200 has shown. That kernel counts as a launch.
- cuBLASLt may split a sum over k. Its workspace and the kernel that adds the parts are not counted, because cuBLASLt chooses.
  In [a step of 32 sequences on an H200](../../bench/results/nvidia_h200_step.csv) these were 48 launches and 1.2 % of the time.
- Embedding rows that occur more than 64 times depend on the data and are not counted.
)");
}

}  // namespace

std::string step_page(const StepTable& table, const Rates& rates) {
  const StepSum& all = table.sum();
  return concat(
      "# A step of GPT-2 as a table\n\nA recorded step of GPT-2 124M in bf16 has 64 sequences of 1024 "
      "tokens. "
      "It makes **",
      all.launches, " launches** and\nmoves **", fixed_text(all.cost.bytes * 1e-9, 1),
      " GB**. An H100 would take **", fixed_text(all.seconds * 1e3, 1),
      R"( ms** at the rates below, without gaps.

)",
      sums(table), R"(
The table is computed. No GPU has run it. The program `step_tests` runs the training's own host code on an
[emulated GPU](../../tests/emulator/README.md) that lists its work instead of executing it. The configuration is
`configs/gpt2_124m.ini` with one replica. The bound of a launch is the longer of the times for its bytes and its operations.
An [H200](../gpu.md#what-has-run-on-a-gpu), with 1.4 times the bandwidth, took 115.3 ms for such a step of an older commit.

## Assumptions

)",
      assumptions(rates), R"(
## History

)",
      history(all), R"(
## What could still go

The aim was 143 GB. These bytes remain:

- **The sums of mlp.c_fc's gradient, 4.8 GB.** A product whose epilogue is the GELU's gradient makes this matrix. Only a pass
  over it can sum its columns: `DGELU_BGRAD` stores 16 bits.
- **Second reads in attention's gradient, 4.9 GB.** Both kernels read queries, keys, values and dy. A single kernel would have
  to add the gradients of queries in memory, in a fixed order.
- **Partial sums of layer norm's gradients, 0.5 GB.** One row of sums for 64 rows keeps all multiprocessors busy.

## Launches of the graph

Products multiply a and b, transposed if marked. Sizes are rows × terms × columns.

)",
      launches(table, true), R"(
## Launches around the graph

)",
      launches(table, false), R"(
## Renewing this page

The test `StepTable.IsThePage` in the preset `emulated` fails if the page differs from what it generates. With
`LOCKSTEP_RENEW_STEP=1` it writes the page. `StepTable.KeepsItsBounds` fails if launches, bytes or bound grow.
)");
}

}  // namespace lockstep
