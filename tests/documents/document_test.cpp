// SPDX-License-Identifier: Apache-2.0
// Tests of parsing, executing, comparing and renewing documents, with small documents.
#include "documents/document.h"

#include <gtest/gtest.h>
#include <stdexcept>
#include <unistd.h>

#include "documents/comparison.h"
#include "documents/execution.h"
#include "documents/renewal.h"
#include "support/eventually.h"
#include "support/program.h"

namespace lockstep::documents {
namespace {

using Lines = std::vector<std::string>;

const std::string ticks = "```";

/// Returns a page with one block.
std::string page(const std::string& info, const std::string& body) {
  return "# Page\n\n" + ticks + info + "\n" + body + ticks + "\n";
}

Document parse(const std::string& text) { return parse_document("docs/page.md", text); }

std::string problem_in(const std::string& text) {
  const Document document = parse(text);
  return document.problems.empty() ? "" : document.problems.front().text;
}

TEST(Blocks, HaveALanguageATagAndLines) {
  const Document document =
      parse(page("console run", "$ echo 1\n1\n") + page("cpp from src/a.h", "int a;\n") +
            page("sh not run: needs a GPU", "nvidia-smi\n") +
            page("sh short: 200 -> 2, text -> sample", "train 200 text\n"));
  EXPECT_TRUE(document.problems.empty());
  ASSERT_EQ(document.blocks.size(), 4U);
  EXPECT_EQ(document.blocks[0].tag, Tag::run);
  EXPECT_EQ(document.blocks[0].lines, (Lines{"$ echo 1", "1"}));
  EXPECT_EQ(document.blocks[1].tag, Tag::from);
  EXPECT_EQ(document.blocks[1].argument, "src/a.h");
  EXPECT_EQ(document.blocks[2].argument, "needs a GPU");
  EXPECT_EQ(parse_replacements(document.blocks[3].argument),
            (Replacements{{"200", "2"}, {"text", "sample"}}));
}

TEST(Blocks, WithoutAKnownTagAreNamed) {
  EXPECT_NE(problem_in(page("", "ls\n")).find("without language and tag"), std::string::npos);
  EXPECT_NE(problem_in(page("sh", "ls\n")).find("without a tag"), std::string::npos);
  EXPECT_NE(problem_in(page("sh maybe", "ls\n")).find("unknown tag 'maybe'"), std::string::npos);
  EXPECT_NE(problem_in(page("sh not run:", "ls\n")).find("without a reason"), std::string::npos);
  EXPECT_NE(problem_in(page("cpp run", "int a;\n")).find("not of cpp"), std::string::npos);
  EXPECT_NE(problem_in(page("sh figure", "ls\n")).find("no figure"), std::string::npos);
  // The message lists the known tags, and the problem has the line.
  EXPECT_NE(problem_in(page("sh", "ls\n")).find("'not run: reason'"), std::string::npos);
  EXPECT_EQ(parse(page("sh", "ls\n")).problems.front().line, 3U);
  EXPECT_EQ(problem_in("# Page\n\n" + ticks + "sh run\nls\n"), "a block without an end");
}

TEST(Blocks, ThatAreIndentedAreNamed) {
  EXPECT_NE(problem_in("Type\n\n    ls -l\n    ls\n").find("indented block"), std::string::npos);
  EXPECT_EQ(parse("Type\n\n    ls -l\n    ls\n").problems.size(), 1U);
  EXPECT_EQ(problem_in("- an item\n\n    its second paragraph\n"), "");
  EXPECT_EQ(problem_in("a paragraph that\n    goes on\n"), "");
  EXPECT_NE(problem_in("- an item\n\nText\n\n    ls\n"), "");
  EXPECT_EQ(problem_in(page("text figure", "\n    a tree\n")), "");
}

TEST(Commands, StandBehindADollarWithTheirOutput) {
  const Document document = parse(page("console run",
                                       "$ for i in 1 2; do\n>   echo $i\n> done\n1\n2\n\n"
                                       "$ false \\\n    --help\n$ echo $?\n1\n"));
  const std::vector<Command> commands = commands_of(document.blocks[0]);
  ASSERT_EQ(commands.size(), 3U);
  EXPECT_EQ(commands[0].text, "for i in 1 2; do\n  echo $i\ndone");
  EXPECT_EQ(commands[0].output, (Lines{"1", "2"}));
  EXPECT_EQ(document.lines[commands[0].output_line], "1");
  EXPECT_EQ(commands[1].text, "false \\\n    --help");
  EXPECT_TRUE(commands[1].output.empty());
  EXPECT_FALSE(commands[0].is_told_failed);
  EXPECT_TRUE(commands[1].is_told_failed);
  EXPECT_THROW(commands_of(parse(page("console run", "ls\n")).blocks[0]), std::runtime_error);
}

TEST(Commands, MayHaveTheirOutputInABlockOfItsOwn) {
  const Document document =
      parse(page("console run", "$ ls\n$ diff a b\n") + page("diff output", "-a\n+b\n"));
  ASSERT_TRUE(document.problems.empty());
  const Command command = commands_of(document.blocks[0], &document.blocks[1]).back();
  EXPECT_EQ(command.output, (Lines{"-a", "+b"}));
  EXPECT_EQ(document.lines[command.output_line], "-a");
  EXPECT_NE(problem_in(page("diff output", "-a\n")).find("no command above"), std::string::npos);
  const Document twice = parse(page("console run", "$ ls\na\n") + page("text output", "a\n"));
  EXPECT_THROW(commands_of(twice.blocks[0], &twice.blocks[1]), std::runtime_error);
}

TEST(Excerpts, StandInTheirFiles) {
  const std::string file = "#include <a>\n\nint main() {\n  first();\n  second();\n  third();\n}\n";
  const auto missing = [&](const std::string& body) {
    return missing_in(parse(page("cpp from main.cpp", body)).blocks[0], file);
  };
  EXPECT_EQ(missing("first();\nsecond();\n"), "");
  EXPECT_EQ(missing("#include <a>\n// ...\n  second();\n...\n}\n"), "");
  EXPECT_NE(missing("second();\nfirst();\n"), "");
  EXPECT_NE(missing("first();\nthird();\n"), "");
  EXPECT_EQ(missing("first();\nfourth();\n"), "there is no line 'fourth();'");
  const std::string solution = "first();\n// blank<void>(\"words\")\nsecond();\n";
  EXPECT_EQ(missing_in(parse(page("cpp from main.cpp", "first();\nsecond();\n")).blocks[0], solution), "");
}

bool equal(const Lines& shown, const Lines& printed, Exactness exactness = Exactness::digits) {
  return compare(shown, printed, exactness).is_equal;
}

TEST(Comparison, ThreeDotsStandForAnyLines) {
  EXPECT_TRUE(equal({"a", "...", "d"}, {"a", "b", "c", "d"}));
  EXPECT_TRUE(equal({"a", "...", "d"}, {"a", "d"}));
  EXPECT_TRUE(equal({"...", "b", "...", "b"}, {"b", "a", "b", "c", "b"}));
  EXPECT_FALSE(equal({"...", "c", "...", "b"}, {"b", "a", "b", "c"}));
  EXPECT_FALSE(equal({"a", "..."}, {"b"}));
  EXPECT_FALSE(equal({"a"}, {"a", "b"}));
  EXPECT_FALSE(equal({}, {"a"}));
  EXPECT_TRUE(equal({}, {}));
  const Match match = compare({"a", "...", "x", "d"}, {"a", "b", "d"}, Exactness::digits);
  EXPECT_FALSE(match.is_equal);
  EXPECT_EQ(match.difference, 2U);
}

TEST(Comparison, EveryDigitCountsUnlessARunIsShortened) {
  EXPECT_FALSE(equal({"loss 0.133887"}, {"loss 0.133888"}));
  EXPECT_TRUE(equal({"loss 0.133887"}, {"loss 0.134"}, Exactness::fractions));
  EXPECT_FALSE(equal({"parameters 78871d7400dcbdea"}, {"parameters 78871d7400dcbdeb"}));
  EXPECT_TRUE(equal({"parameters 78871d7400dcbdea"}, {"parameters 0123456789abcdef"}, Exactness::fractions));
  EXPECT_TRUE(equal({"-1.5e-07, 2e+10"}, {"0.25, 1.0"}, Exactness::fractions));
  EXPECT_FALSE(equal({"loss 0.5 (best so far)"}, {"loss 0.5"}));
  EXPECT_TRUE(equal({"loss 0.5 (best so far)"}, {"loss 0.6"}, Exactness::fractions));
  // For a shortened run the values of numbers are not compared.
  EXPECT_FALSE(equal({"step 2000: loss 1.5"}, {"step 2001: loss 1.5"}, Exactness::fractions));
  EXPECT_FALSE(equal({"loss 0.5"}, {"loss nan"}, Exactness::numbers));
  EXPECT_TRUE(equal({"step 2000: loss 1.5"}, {"step 20: loss 4"}, Exactness::numbers));
}

TEST(Comparison, WhatVariesNeverCounts) {
  EXPECT_TRUE(equal({"rank 1 (host vm, pid 31239) after 0.2 s"}, {"rank 1 (host node-7, pid 5) after 31 s"}));
  EXPECT_TRUE(equal({"ranks 0-1 on vm: Intel(R) Xeon(R)"}, {"ranks 0-1 on a.b: AMD EPYC 9B14 64-Core"}));
  EXPECT_FALSE(equal({"ranks 0-1 on vm: Intel(R) Xeon(R)"}, {"ranks 0-2 on vm: Intel(R) Xeon(R)"}));
  EXPECT_TRUE(
      equal({"1 CPU rank (2 threads each, x86-64 avx2 fma)"}, {"1 CPU rank (8 threads each, aarch64 fma)"}));
  EXPECT_TRUE(equal({"Plan | total: 25 MiB"}, {"Plan | total: 1.1 GiB"}));
  EXPECT_TRUE(equal({"  backward    451 MiB"}, {"  backward    2.5 GiB"}));
  EXPECT_FALSE(equal({"  weights    451 MiB"}, {"  weights    450 MiB"}));
  EXPECT_TRUE(equal({"27.0k tokens/s"}, {"950 tokens/s"}));
  EXPECT_TRUE(equal({"[CPU0 = node0:0] Epoch 0"}, {"[CPU0 = vm:0] Epoch 0"}));
  EXPECT_FALSE(equal({"[CPU0 = node0:0] Epoch 0"}, {"[CPU0 = vm:0] Epoch 1"}));
  EXPECT_TRUE(
      equal({"done"}, {"step 5/9  loss 2.5  1.2k tokens/s  ETA 0:01", "about 20 seconds left", "done"}));
}

TEST(Comparison, RanksSpeakInAnyOrder) {
  EXPECT_TRUE(equal({"[CPU0] a", "[CPU1] a", "done"}, {"[CPU1] a", "done", "[CPU0] a"}));
  EXPECT_FALSE(equal({"[CPU0] a", "done"}, {"[CPU1] a", "done", "[CPU0] a"}));
  EXPECT_TRUE(equal({"[CPU0] a", "...", "done"}, {"[CPU1] a", "done", "[CPU0] a"}));
  EXPECT_FALSE(equal({"[CPU2] a", "...", "done"}, {"[CPU1] a", "done"}));
}

/// Executes a page in a tree that contains only an env.sh.
class Pages : public testing::Test {
 protected:
  Pages() {
    std::filesystem::create_directory(tree_ / "scripts");
    write_text(tree_ / "scripts/env.sh", "");
  }

  std::vector<Executed> run(const std::string& text, bool is_full = false) const {
    return execute(parse(text), session(is_full));
  }
  /// Returns the error of the first command that has one.
  std::string problem(const std::string& text) const {
    for (const Executed& executed : run(text))
      if (const std::string found = problem_of(executed); !found.empty()) return found;
    return "";
  }
  std::string renew(const std::string& text, bool is_full = false) const {
    return renewed_text(parse(text), run(text, is_full));
  }
  Session session(bool is_full) const {
    return {.sources = tree_.path(), .build = tree_.path(), .is_full = is_full, .most_seconds = 20};
  }

  TemporaryDirectory tree_;
};

TEST_F(Pages, AreOneSession) {
  EXPECT_EQ(problem(page("sh run", "word=bits\nsay() { echo $word >file; }\n") +
                    page("console run", "$ say; cat file\nbits\n$ ls\nbuild\nfile\nscripts\n")),
            "");
  EXPECT_FALSE(std::filesystem::exists(tree_ / "file"));
}

TEST_F(Pages, ThatShowAnotherDigitFail) {
  EXPECT_EQ(problem(page("console run", "$ echo loss 0.25\nloss 0.25\n")), "");
  const std::string found = problem(page("console run", "$ echo loss 0.25\nloss 0.26\n"));
  EXPECT_NE(found.find("does not print 'loss 0.26'"), std::string::npos) << found;
  EXPECT_NE(problem(page("console run", "$ seq 2\n1\n")).find("prints more"), std::string::npos);
  EXPECT_NE(problem(page("console run", "$ seq 1\n")).find("prints more"), std::string::npos);
  EXPECT_EQ(problem(page("console run", "$ echo lost >&2\nlost\n")), "");
}

TEST_F(Pages, WhoseCommandsFailFail) {
  EXPECT_NE(problem(page("sh run", "true\nls nowhere | wc\nls /no/where\ntrue\n")).find("ls /no/where ended"),
            std::string::npos);
  EXPECT_EQ(problem(page("sh run", "if false; then ls; fi\nfalse || true\n")), "");
  EXPECT_NE(problem(page("console run", "$ false\n")).find("ended with 1"), std::string::npos);
  EXPECT_EQ(problem(page("console run", "$ (exit 75)\n$ echo $?\n75\n")), "");
  EXPECT_NE(problem(page("sh run", "exit 0\n")).find("not ended"), std::string::npos);
  EXPECT_NE(problem(page("console run", "$ echo 'a\n")), "");
}

TEST_F(Pages, AreShortened) {
  const std::string text =
      page("console short: 2000 -> 2", "$ seq 2000 | tail -n 1 | sed 's/^/step /'\nstep 2000\n");
  EXPECT_EQ(problem(text), "");
  EXPECT_EQ(run(text).front().output, (Lines{"step 2"}));
  EXPECT_EQ(run(text, true).front().output, (Lines{"step 2000"}));
  EXPECT_NE(problem(page("console short: 2000 -> 2", "$ echo 2000\nstep 2000\n")), "");
  EXPECT_THROW(run(page("sh short: 3000 -> 2", "seq 2000\n")), std::runtime_error);
  EXPECT_THROW(run(page("sh short: 2000", "seq 2000\n")), std::runtime_error);
}

TEST_F(Pages, AreRenewed) {
  const auto shows = [](const std::string& output) {
    return page("console run", "$ seq -f 0.%g 8\n" + output);
  };
  EXPECT_EQ(renew(shows("0.1\n...\n0.8\n")), shows("0.1\n...\n0.8\n"));
  EXPECT_EQ(renew(shows("0.4\n...\n0.7\n")), shows("0.1\n...\n0.8\n"));
  EXPECT_EQ(renew(shows("0.1\n0.2\n")), shows("0.1\n0.2\n0.3\n0.4\n0.5\n0.6\n0.7\n0.8\n"));
  EXPECT_EQ(renew(shows("loss 1\n...\n0.7\n0.7\n")), shows("0.1\n...\n0.7\n0.8\n"));
  const auto epochs = [](const std::string& output) {
    return page("console run", "$ seq -f 'epoch %g: 0.5' 9\n" + output);
  };
  EXPECT_EQ(renew(epochs("...\nepoch 4: 0.7\n...\n")), epochs("...\nepoch 4: 0.5\n...\n"));
  // Neither different seconds nor the output of a shortened run changes a page.
  const std::string seconds = page("console run", "$ echo 0.5 s\n0.4 s\n");
  EXPECT_EQ(renew(seconds), seconds);
  const std::string shortened = page("console short: 9 -> 2", "$ echo step 9\nstep 8\n");
  EXPECT_EQ(renew(shortened), shortened);
  EXPECT_EQ(renew(shortened, true), page("console short: 9 -> 2", "$ echo step 9\nstep 9\n"));
  EXPECT_THROW(renew(page("console run", "$ false\n")), std::runtime_error);
}

TEST_F(Pages, LeaveNothingBehind) {
  // The process number makes the length unique, because tests of other builds may sleep at the same time.
  const std::string sleep = "sleep 300." + std::to_string(::getpid());
  const auto is_gone = [&] { return run_command("! pgrep -f '^" + sleep + "'").exit_code == 0; };
  EXPECT_EQ(problem(page("sh run", sleep + " &\nuntil pgrep -f '^" + sleep + "'; do sleep 0.01; done\n")),
            "");
  EXPECT_TRUE(eventually(is_gone));
  const Session hasty = {.sources = tree_.path(), .build = tree_.path(), .most_seconds = 1};
  const std::vector<Executed> all = execute(parse(page("console run", "$ " + sleep + "\n$ true\n")), hasty);
  EXPECT_NE(problem_of(all.front()).find("not ended"), std::string::npos);
  EXPECT_TRUE(eventually(is_gone));
}

}  // namespace
}  // namespace lockstep::documents
