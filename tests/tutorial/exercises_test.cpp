// SPDX-License-Identifier: Apache-2.0
// The exercises of the tutorial, their solutions, and check_exercise.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/tutorial/exercises/check/exercise_list.h"
#include "apps/tutorial/exercises/check/trial_run.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

const std::string tutorial = std::string(LOCKSTEP_SOURCE_DIR) + "/apps/tutorial/";

/// One blank of a skeleton, as it is in the source.
struct Blank {
  std::string words;
  int line = 0;
};

/// Returns the text of adjacent string literals.
std::string text_of(const std::string& literals) {
  std::string text;
  bool is_within = false;
  for (size_t i = 0; i < literals.size(); ++i) {
    const bool is_escaped = literals[i] == '\\';
    if (is_escaped) ++i;
    if (!is_escaped && literals[i] == '"')
      is_within = !is_within;
    else if (is_within)
      text += literals[i];
  }
  return text;
}

/// Returns the blanks of an exercise's source, in order.
std::vector<Blank> blanks_of(const std::string& source) {
  // A long text may consist of several adjacent literals.
  static const std::regex blank(R"re(blank<[A-Za-z_:0-9<>]+>\(((?:\s*"(?:[^"\\]|\\.)*")+)\))re");
  std::vector<Blank> blanks;
  for (std::sregex_iterator match(source.begin(), source.end(), blank), end; match != end; ++match)
    blanks.push_back(
        {.words = text_of((*match)[1].str()),
         .line = 1 + static_cast<int>(std::count(source.begin(), source.begin() + match->position(), '\n'))});
  return blanks;
}

/// Runs skeleton.awk on a solution.
Outcome make_skeleton(const std::string& solution) {
  return run_command("awk -f " + tutorial + "solutions/skeleton.awk " + solution);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(tutorial + folder))
    if (std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0])))
      names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ExerciseSources, EachSolutionHasOneToFourBlanks) {
  std::vector<std::string> listed;
  for (const Exercise& exercise : all_exercises()) listed.push_back(exercise.name);
  EXPECT_EQ(names_in("solutions"), listed);
  EXPECT_GE(listed.size(), 12U);
  for (const std::string& name : listed) {
    const Outcome skeleton = make_skeleton(tutorial + "solutions/" + name + ".cpp");
    EXPECT_EQ(skeleton.exit_code, 0) << skeleton.errors;
    const size_t blanks = blanks_of(skeleton.out).size();
    EXPECT_GE(blanks, 1U) << name;
    EXPECT_LE(blanks, 4U) << name;
    EXPECT_EQ(skeleton.out.find("// blank<"), std::string::npos) << name << ": a mark was left";
  }
}

TEST(ExerciseSources, AMarkedPartBecomesABlank) {
  const TemporaryDirectory folder;
  const auto skeleton = [&](const std::string& solution) {
    write_text(folder / "1a.cpp", solution);
    const Outcome outcome = make_skeleton(folder / "1a.cpp");
    return outcome.exit_code == 0 ? outcome.out : outcome.errors;
  };
  EXPECT_EQ(
      skeleton("  // blank<int>(\"one\"): b(\"&\")\n  // blank<int>(\"two\"): a\n  f(a,\n    b(\"&\"));\n"),
      "  f(blank<int>(\"two\"),\n    blank<int>(\"one\"));\n");
  EXPECT_EQ(skeleton("  // blank<void>(\"three\")\n  a();\n  b();\n"), "  blank<void>(\"three\");\n  b();\n");
  EXPECT_EQ(skeleton("  // blank<void>(\"three\"), 2 lines\n  a();\n  b();\n"),
            "  blank<void>(\"three\");\n");
  const std::string place = folder / "1a.cpp:1: ";
  EXPECT_EQ(skeleton("// blank<int>(\"one\"): a\nb\nb\nb\na\n"),
            place + "'a' is in none of the next three lines\n");
  EXPECT_EQ(skeleton("// blank<int>(\"one\"): a\n"), place + "'a' is in none of the next three lines\n");
  EXPECT_EQ(skeleton("// blank<void>(\"three\")\n"), place + "there is no line below the last mark\n");
  EXPECT_TRUE(skeleton("// blank<int>(\"one\")\na\n").starts_with(place + "a mark is "));
  EXPECT_TRUE(skeleton("// blank<int> one: a\na\n").starts_with(place + "a mark is "));
}

TEST(ExerciseSources, ThePagesHaveEachOfThem) {
  const std::string pages = std::string(LOCKSTEP_SOURCE_DIR) + "/docs/tutorial/";
  const std::string solutions = read_text(pages + "solutions.md") + read_text(pages + "5_solutions.md") +
                                read_text(pages + "6_solutions.md");
  for (const auto& [page, text] :
       {std::pair("exercises.md", read_text(pages + "exercises.md")), std::pair("solutions.md", solutions)}) {
    for (const Exercise& exercise : all_exercises())
      EXPECT_NE(text.find("\n## " + exercise.name.substr(0, 2) + " "), std::string::npos)
          << page << " has no section of " << exercise.name;
  }
}

std::vector<Point> flat(const std::vector<std::vector<Point>>& starts) {
  std::vector<Point> points;
  for (const auto& start : starts) points.insert(points.end(), start.begin(), start.end());
  return points;
}

TEST(ExerciseReference, AMistakeShowsInTheBitsOfItsJobAndInNoOther) {
  const Job two_ranks = {.momentum = 0.9, .starts = {{.ranks = 2, .until_epoch = 1}, {.ranks = 2}}};
  const std::vector<std::vector<Point>> right = trace(two_ranks);
  EXPECT_EQ(flat(right).size(), 64U);
  EXPECT_EQ(right, trace(two_ranks));
  for (const Mistake mistake : {Mistake::own_gradient, Mistake::gradient_sum, Mistake::epoch_not_set,
                                Mistake::first_replica, Mistake::momentum_lost, Mistake::epoch_repeated})
    EXPECT_NE(trace(two_ranks, mistake), right) << name(mistake);
  // The job lacks the parts that these mistakes need, so its trace stays right.
  for (const Mistake mistake :
       {Mistake::chain_of_additions, Mistake::mean_of_means, Mistake::local_rank_as_rank})
    EXPECT_EQ(trace(two_ranks, mistake), right) << name(mistake);
  std::set<std::string> names;
  for (const Mistake mistake : all_mistakes())
    EXPECT_TRUE(names.insert(name(mistake)).second) << name(mistake);
}

#ifdef LOCKSTEP_PLANTED_DIR

const std::string planted = LOCKSTEP_PLANTED_DIR;

Outcome check_exercise(const std::string& arguments) {
  return run_command(program("check_exercise") + " " + arguments);
}

TEST(Exercises, EachNamesItsFirstBlankAndThePlace) {
  const Outcome outcome = check_exercise("--exercises " + planted + "/blank");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.errors;
  for (const Exercise& exercise : all_exercises()) {
    const Outcome skeleton = make_skeleton(tutorial + "solutions/" + exercise.name + ".cpp");
    const std::vector<Blank> blanks = blanks_of(skeleton.out);
    const bool is_named = std::any_of(blanks.begin(), blanks.end(), [&](const Blank& blank) {
      const std::regex line("\n?" + exercise.name + ": still blank: .*/" + exercise.name +
                            "\\.cpp:" + std::to_string(blank.line) + "\\)\n");
      return std::regex_search(outcome.out, line) && outcome.out.find(blank.words) != std::string::npos;
    });
    EXPECT_TRUE(is_named) << exercise.name << "\n" << outcome.out;
  }
  const std::string all = std::to_string(all_exercises().size());
  EXPECT_TRUE(outcome.out.ends_with("\n0 of " + all + " exercises are solved\n")) << outcome.out;
}

TEST(Exercises, AProgramOlderThanItsSourceIsNotJudged) {
  const TemporaryDirectory folder;
  std::filesystem::create_directory(folder / "exercises");
  std::filesystem::copy_file(program("check_exercise"), folder / "check_exercise");
  write_text(folder / "exercises/1a_loop", "#!/bin/sh\n");
  ASSERT_EQ(run_command("touch -d 2000-01-01 " + (folder / "exercises/1a_loop")).exit_code, 0);
  const Outcome outcome = run_command((folder / "check_exercise") + " 1a");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.out.find("1a_loop: the source was changed after the program was built"),
            std::string::npos)
      << outcome.out << outcome.errors;
  std::filesystem::remove(folder / "exercises/1a_loop");
  EXPECT_EQ(run_command((folder / "check_exercise") + " 1a").out,
            "1a_loop: the program is not built yet: cmake --build --preset cpu --target 1a_loop\n");
}

TEST(Exercises, EverySolutionIsSolved) {
  const Outcome outcome = check_exercise("--deadline 60 --exercises " + program("solutions"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.errors;
  const std::string all = std::to_string(all_exercises().size());
  EXPECT_TRUE(outcome.out.ends_with("\n" + all + " of " + all + " exercises are solved\n")) << outcome.out;
}

/// check_exercise can name mistakes only if its reference has the bits of every solution.
TEST(Exercises, TheReferenceHasTheBitsOfEverySolution) {
  for (const Exercise& exercise : all_exercises())
    for (const Trial& trial : exercise.trials) {
      const TrialRun run = run_trial(program("solutions/" + exercise.name), trial);
      ASSERT_EQ(run.failure, "") << exercise.name;
      const std::vector<std::vector<Point>> expected = trace(trial.job);
      ASSERT_EQ(run.starts.size(), expected.size()) << exercise.name;
      for (size_t start = 0; start < expected.size(); ++start) {
        std::vector<Point> points;
        for (const TraceLine& line : run.starts[start])
          if (line.point) points.push_back(*line.point);
        EXPECT_FALSE(points.empty());
        EXPECT_TRUE(points == expected[start]) << exercise.name << ", start " << start;
      }
    }
}

TEST(Exercises, APlantedMistakeIsNamed) {
  std::istringstream list(read_text(planted + "/list.txt"));
  int number = 0;
  for (std::string line; std::getline(list, line); ++number) {
    const std::string name = line.substr(0, line.find('|'));
    const std::string words = line.substr(line.find('|') + 1);
    const TemporaryDirectory folder;
    write_text(folder / name, "#!/bin/sh\nexec " + planted + "/" + std::to_string(number) + " \"$@\"\n");
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
    // Some answers end only by the deadline. Their ranks wait for others that never arrive.
    const bool waits = words.ends_with("alone resumed]");
    const Outcome outcome =
        check_exercise(name + " --exercises " + folder.path() + (waits ? " --deadline 6" : " --deadline 60"));
    EXPECT_EQ(outcome.exit_code, 1) << name << " " << words << "\n" << outcome.out << outcome.errors;
    EXPECT_NE(outcome.out.find(words), std::string::npos) << name << " " << words << "\n" << outcome.out;
  }
  EXPECT_GE(number, 20);
}

TEST(Exercises, CheckExerciseRefusesWhatItCannotCheck) {
  const Outcome unknown = check_exercise("9z");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(unknown.errors.starts_with("error: no exercise begins with '9z'; the exercises are 1a_loop "))
      << unknown.errors;
  EXPECT_EQ(check_exercise("1a 1b").exit_code, 2);
  EXPECT_EQ(check_exercise("--bits").exit_code, 2);
  const Outcome missing = check_exercise("1a --exercises /nowhere");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.errors.find("cmake --build --preset cpu --target 1a_loop"), std::string::npos)
      << missing.errors;
  EXPECT_EQ(check_exercise("--help").exit_code, 0);
}

/// check_exercise must distinguish a right program from one that ends early, fails, or reports out of order.
TEST(Exercises, CheckExerciseTellsHowAProgramFails) {
  const TemporaryDirectory folder;
  const auto checked = [&](const std::string& filter) {
    write_text(folder / "1a_loop", "#!/bin/bash\n" + program("solutions/1a_loop") + " | " + filter + "\n");
    std::filesystem::permissions(folder / "1a_loop", std::filesystem::perms::owner_all);
    const Outcome outcome = check_exercise("1a --exercises " + folder.path());
    return std::to_string(outcome.exit_code) + " " + outcome.out;
  };
  EXPECT_EQ(checked("cat"), "0 1a_loop: solved, 128 of 128 losses have the solution's bits\n");
  EXPECT_NE(checked("head -n 9").find("in line 10 of its report: yours is nothing more"), std::string::npos);
  EXPECT_NE(checked("sed p").find("' more than once: do several ranks report?"), std::string::npos);
  EXPECT_NE(checked("sed 's/^step 70 loss_bits .*/step 70 loss_bits 3f800000 (1)/'")
                .find("at step 70 (epoch 1): yours is 3f800000 (1), the solution's "),
            std::string::npos);
  EXPECT_NE(checked("cat; echo 'error: no more' >&2; exit 3").find("ended with exit code 3: no more\n"),
            std::string::npos);
}

TEST(LaunchedExercises, HaveTheBitsOfThoseWhoseRanksAreThreads) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const TemporaryDirectory folder;
  const std::string go = "cd " + folder.path() + " && ";
  const Outcome threads = run_command(go + program("solutions/4a_local_rank"));
  const Outcome processes = run_command(go + mpirun(4) + program("solutions/4a_local_rank"));
  EXPECT_EQ(processes.exit_code, 0) << processes.errors;
  EXPECT_FALSE(threads.out.empty());
  EXPECT_EQ(processes.out, threads.out);
}

#else

TEST(Exercises, AreRun) { GTEST_SKIP() << "this build has no exercises: they are compiled in plain builds"; }

#endif

}  // namespace
}  // namespace lockstep
