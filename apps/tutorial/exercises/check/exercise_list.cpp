// SPDX-License-Identifier: Apache-2.0
#include "apps/tutorial/exercises/check/exercise_list.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// Returns one start without arguments. The program itself has the job's number of ranks.
std::vector<Trial> plain(const Job& job) { return {{.job = job}}; }

/// Returns a trial of two epochs on `ranks` ranks, and then two more on `ranks_later` ranks.
std::vector<Trial> resumed(Job job, int ranks, int ranks_later) {
  job.momentum = 0.9;
  job.starts = {{.ranks = ranks, .until_epoch = 2}, {.ranks = ranks_later, .until_epoch = 4}};
  return {{.starts = {{"2"}, {"4", "--ranks", concat(ranks_later)}}, .job = job}};
}

/// Returns a trial of two epochs on `ranks` ranks, two on `ranks_later` ranks, and two on one rank.
std::vector<Trial> resumed_twice(const Job& job, int ranks, int ranks_later) {
  std::vector<Trial> trials = resumed(job, ranks, ranks_later);
  trials[0].starts.push_back({"6", "--ranks", "1"});
  trials[0].job.starts.push_back({.ranks = 1, .until_epoch = 6});
  return trials;
}

/// Returns trials of four replicas on 3, 1 and 4 ranks.
std::vector<Trial> on_several_numbers_of_ranks() {
  std::vector<Trial> trials;
  for (const int ranks : {3, 1, 4})
    trials.push_back(
        {.starts = {{"--ranks", concat(ranks)}}, .job = {.replicas = 4, .starts = {{.ranks = ranks}}}});
  return trials;
}

}  // namespace

const std::vector<Exercise>& all_exercises() {
  static const std::vector<Exercise> all = {
      {"1a_loop", plain({})},
      {"1b_momentum", plain({.momentum = 0.9})},
      {"1c_accumulation", plain({.replicas = 4})},
      {"2a_launch", plain({.starts = {{.ranks = 4}}})},
      {"2b_sampler", plain({.starts = {{.ranks = 3}}})},
      {"2c_average", plain({.starts = {{.ranks = 4}}})},
      {"2d_buckets", plain({.widths = {20, 32, 16, 1}, .starts = {{.ranks = 2}}})},
      {"2e_replicas", on_several_numbers_of_ranks()},
      {"2f_evaluation", plain({.evaluates = true, .starts = {{.ranks = 3, .until_epoch = 3}}})},
      {"3a_snapshot", resumed({}, 2, 2)},
      {"3b_resume", resumed({}, 2, 2)},
      {"3c_other_ranks", resumed_twice({}, 4, 2)},
      {"4a_local_rank", plain({.nodes = 2, .starts = {{.ranks = 4}}})},
      {"4b_who_saves", resumed({.nodes = 2}, 4, 4)},
      {"4c_once_a_node", plain({.nodes = 2, .seed = 7, .starts = {{.ranks = 4}}})},
      {"5a_micro_batches", plain({.widths = {20, 64, 64, 1}, .batch_size = 256, .parts = 8})},
      {"5b_grad_scaler", plain({.widths = {20, 32, 1}, .growth_interval = 8})},
      {"5c_recompute", plain({.widths = {20, 64, 64}, .second_widths = {64, 64, 1}})},
      {"6a_moments",
       plain({.widths = {20, 256, 1}, .cut = Cut::space, .momentum = 0.9, .starts = {{.ranks = 4}}})},
      {"6b_layers", plain({.widths = {20, 32, 32, 1}, .cut = Cut::layers, .starts = {{.ranks = 3}}})},
  };
  return all;
}

std::vector<Exercise> exercises_named(const std::string& beginning) {
  std::vector<Exercise> found;
  std::string names;
  for (const Exercise& exercise : all_exercises()) {
    if (exercise.name.starts_with(beginning)) found.push_back(exercise);
    names += " " + exercise.name;
  }
  require(!found.empty(), "no exercise begins with '", beginning, "'; the exercises are", names);
  return found;
}

}  // namespace lockstep
