// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/replay/recorded_run.h"

namespace lockstep {

/// A fact about two runs that differs.
struct FactDifference {
  std::string kind;  ///< "key", "data", "scope", "program", "build"
  std::string name;  ///< "train.seed", "corpus"
  std::string a, b;
};

/// The first step whose bits differ in the records of two runs.
struct StepDifference {
  int64_t step = 0;
  std::string what;  ///< "the loss", "the gradient norm", "the learning rate", "the validation loss"
  std::string a, b;
};

/// The place of a difference. Unknown fields are empty or -1.
struct DifferencePlace {
  int64_t step = 0;
  int64_t replica = -1;
  int64_t micro_batch = -1;
  std::string direction = {};  ///< "forward" or "backward"
  std::string operation = {};  ///< its name
  std::string parameter = {};  ///< that the operation reads, or that differs
  std::string element = {};    ///< "[3, 17]"
  std::string a = {}, b = {};  ///< the bits of the element, in hexadecimal, or the texts that differ
};

/// Why two runs differ.
struct Explanation {
  std::string a, b;                           ///< the folders
  std::vector<FactDifference> decisive = {};  ///< facts that allow other bits; none: the runs had to be equal
  std::vector<FactDifference> builds = {};    ///< builds and programs; they must not change bits
  std::vector<FactDifference> others = {};    ///< keys that do not fix the bits
  int64_t compared = 0;                       ///< the last step that both have
  std::optional<StepDifference> first = {};   ///< nothing: the records are equal
  /// "none", "key", "data", "scope", "build", "fault", "record", "snapshot" or "unknown"
  std::string cause = "none";
  std::string run = {};      ///< "A" or "B" if the cause is in one of them
  std::string because = {};  ///< the cause in words, a sentence or some
  std::optional<DifferencePlace> place = {};

  bool had_to_be_equal() const { return decisive.empty(); }
  bool is_equal() const { return cause == "none"; }
};

struct ExplainOptions {
  SettingLayer overrides = {};         ///< keys that do not fix the bits
  std::string programs_a, programs_b;  ///< folders of the programs of each build; empty: as recorded
};

/// Compares the records of two runs: their keys, data, scopes and builds, and then their steps. Computes
/// nothing. If facts allow other bits, they are the cause.
Explanation compare_records(const RecordedRun& a, const RecordedRun& b);

/// Explains why two runs differ. If they had to be equal, it computes steps again. If that is impossible, the
/// cause is "unknown".
Explanation explain(const RecordedRun& a, const RecordedRun& b, const World& world,
                    const ExplainOptions& options = {});

/// Describes it on one screen.
std::string describe(const Explanation& explanation);
std::string to_json(const Explanation& explanation);

}  // namespace lockstep
