// SPDX-License-Identifier: Apache-2.0
// Tests of this tree's documents. Each block has a tag, each command prints the shown output, and each file
// contains its excerpts.
#include <algorithm>
#include <gtest/gtest.h>
#include <iostream>
#include <stdexcept>

#include "documents/document.h"
#include "documents/execution.h"
#include "lockstep/core/text.h"
#include "support/program.h"

namespace lockstep::documents {
namespace {

const std::string sources = LOCKSTEP_SOURCE_DIR;

class Documents : public testing::TestWithParam<std::string> {
 protected:
  std::string path_ = GetParam();
  Document document_ = parse_document(path_, read_text(sources + "/" + path_));

  std::vector<Problem> problems_of_execution() const {
    const Session session = {.sources = sources, .build = std::string(LOCKSTEP_PROGRAM_DIR) + "/.."};
    std::vector<Problem> problems;
    for (const Executed& executed : execute(document_, session)) {
      const std::string problem = problem_of(executed);
      if (!problem.empty()) problems.push_back({path_, executed.command.line + 1, problem});
      if (!executed.is_run) break;
      if (executed.seconds > 5)
        std::cout << path_ << ":" << executed.command.line + 1 << ": " << executed.seconds << " s\n";
    }
    return problems;
  }

  void fail(size_t line, const std::string& what) const {
    ADD_FAILURE_AT(path_.c_str(), static_cast<int>(line)) << what;
  }
};

TEST_P(Documents, AreTrue) {
  for (const Problem& problem : document_.problems) fail(problem.line, problem.text);

  for (const Block& block : document_.blocks) {
    if (block.tag != Tag::from) continue;
    const std::string file = read_text(sources + "/" + block.argument);
    const std::string missing = file.empty() ? "there is no such file" : missing_in(block, file);
    if (!missing.empty()) fail(block.line + 1, "from " + block.argument + ": " + missing);
  }
}

// Some pages kill ranks under mpirun. On a busy machine mpirun mixes the lines of ranks in one of ten such
// runs. So a failed page is executed a second time, and the first failures are printed. A wrong result fails
// both times.
TEST_P(Documents, PrintWhatTheyShow) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  std::vector<Problem> problems = problems_of_execution();
  if (!problems.empty()) {
    for (const Problem& problem : problems)
      std::cout << path_ << ":" << problem.line << ": " << problem.text << "\nOnce more.\n";
    problems = problems_of_execution();
  }
  for (const Problem& problem : problems) fail(problem.line, problem.text);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

/// Returns the documents whose commands start several ranks, or all others.
std::vector<std::string> documents(bool with_ranks) {
  std::vector<std::string> paths;
  for (const std::string& path : document_paths(sources)) {
    const Document document = parse_document(path, read_text(sources + "/" + path));
    const auto starts_ranks = [](const Block& block) {
      const std::string text = joined(block.lines, "\n");
      return block.is_executed() &&
             (text.find("mpirun ") != std::string::npos || text.find("lockrun ") != std::string::npos);
    };
    if (std::any_of(document.blocks.begin(), document.blocks.end(), starts_ranks) == with_ranks)
      paths.push_back(path);
  }
  return paths;
}

INSTANTIATE_TEST_SUITE_P(WithRanks, Documents, testing::ValuesIn(documents(true)), test_name);
INSTANTIATE_TEST_SUITE_P(Alone, Documents, testing::ValuesIn(documents(false)), test_name);

}  // namespace
}  // namespace lockstep::documents
