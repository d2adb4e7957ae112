// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/report.h"

#include <cmath>
#include <gtest/gtest.h>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/events/events.h"
#include "lockstep/report/comparison.h"
#include "lockstep/report/history.h"
#include "tests/report/well_formed.h"
#include "tests/support/program.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

constexpr double begin_time = 1.8e9;

std::string step_line(int64_t step, double loss, double seconds, const std::string& more = "") {
  std::ostringstream line;
  line << R"({"step":)" << step << R"(,"time":)" << std::fixed << begin_time + seconds << R"(,"loss":)"
       << (std::isfinite(loss) ? concat(loss) : "null") << R"(,"lr":0.001,"grad_norm":)"
       << 1 + (step % 7) * 0.1 << R"(,"tokens_per_s":)" << 1000 + step % 13
       << R"(,"step_ms":10,"exposed_comm_ms":2,"data_wait_ms":1,)"
       << R"("memory_mib":12.5)" << more << "}\n";
  return line.str();
}

std::string event_line(const std::string& what, double seconds, int64_t step, const std::string& more = "") {
  std::ostringstream line;
  line << R"({"event":")" << what << R"(","time":)" << std::fixed << begin_time + seconds << R"(,"step":)"
       << step << more << "}\n";
  return line.str();
}

const std::string done_line = "{\"done\":true,\"parameters_hash\":\"0123456789abcdef\"}\n";

class ReportTest : public testing::Test {
 protected:
  /// Makes the folder of a run and returns its path.
  std::string make_run(const std::string& name, const std::string& metrics, const std::string& events = "",
                       const std::string& settings = "") {
    const std::string folder = directory_ / name;
    std::filesystem::create_directories(folder);
    write_text(folder + "/metrics.jsonl", metrics);
    if (!events.empty()) write_text(folder + "/events.jsonl", events);
    if (!settings.empty()) write_text(folder + "/config.ini", settings);
    return folder;
  }
  static std::string html_of(const std::vector<std::string>& folders) {
    return report_page(read_runs(folders));
  }
  /// Returns the numbers of a line's points.
  static std::vector<std::string> lines_in(const std::string& html) {
    std::vector<std::string> found;
    const std::string mark = "<path class=\"line s1\" data-name=";
    for (size_t at = html.find(mark); at != std::string::npos; at = html.find(mark, at + 1))
      found.push_back(html.substr(at, html.find("/>", at) - at));
    return found;
  }

  TemporaryDirectory directory_;
};

TEST_F(ReportTest, ShowsTheResultOfARun) {
  const std::string html = html_of({make_run(
      "mine", step_line(1, 4, 0) + step_line(2, 2.5, 1, R"(,"val_loss":2.75)") + done_line,
      event_line("start", -1, 0, R"(,"program":"train_gpt","build":"a build")") + event_line("end", 2, 2))});
  EXPECT_EQ(problem_of_xml(html), "");
  expect_contains(html, {"<h1>mine</h1>", "Finished", "2 steps in 3 s", "2.5", "2.75", "at step 2",
                         "0123456789abcdef", "train_gpt", "a build", "log.trace=steps"});
  EXPECT_EQ(html, html_of({directory_ / "mine"})) << "the same files give the same bytes";
}

TEST_F(ReportTest, LoadsNothing) {
  const std::string html = html_of({make_run("mine", step_line(1, 4, 0))});
  for (const char* word : {"http:", "https:", "src=", "url(", "@import", "<link rel=\"style"})
    EXPECT_EQ(html.find(word), std::string::npos) << word;
}

TEST_F(ReportTest, SkipsTornLinesAndShowsGaps) {
  const std::string metrics = step_line(1, 4, 0) + step_line(2, 3, 1) + step_line(3, NAN, 2) +
                              "{\"step\":4,\"lo\n" + "[1]\n\n" + step_line(5, 2, 4) + step_line(6, 2, 5) +
                              "{\"step\":7,\"los";
  const std::vector<RunFiles> runs = read_runs({make_run("mine", metrics)});
  EXPECT_EQ(runs[0].metrics.steps, 6);
  ASSERT_EQ(runs[0].metrics.loss.bins().size(), 5U);
  EXPECT_EQ(state_of(runs[0]), RunState::open);
  const std::string html = report_page(runs);
  const std::string loss = lines_in(html).at(0);
  EXPECT_EQ(std::ranges::count(loss, 'M'), 2) << "the line has a gap: " << loss;
  expect_contains(html, {"No end recorded", "values that are not finite"});
}

TEST_F(ReportTest, ShowsRestartsWithTheirCauses) {
  const std::string events =
      event_line("start", 0, 0) +
      event_line("snapshot", 5, 4, R"(,"kind":"newest","seconds":"0.5","problem":"")") +
      event_line("failure", 9, 7, R"(,"cause":"rank 1 (host <b>) was ended by SIGKILL\nlast & line")") +
      event_line("start", 10, 4) +
      event_line("snapshot", 11, 8, R"(,"kind":"newest","problem":"disk <full>")") +
      event_line("memory", 12, 8, R"(,"gradients":"2097152","total":"3145728")") +
      event_line("audit", 13, 9, R"(,"wrong":"rank <2>")") + event_line("stop", 20, 10);
  const std::vector<RunFiles> runs =
      read_runs({make_run("mine", step_line(4, 2, 4) + step_line(10, 1, 19), events)});
  const std::vector<RunStart> starts = starts_of(runs[0]);
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].how, RunStart::End::failed);
  EXPECT_EQ(starts[0].last_step, 7);
  EXPECT_EQ(starts[1].first_step, 4);
  EXPECT_EQ(starts[1].how, RunStart::End::stopped);
  EXPECT_EQ(seconds_of(runs[0]), 19.0);
  const std::string html = report_page(runs);
  EXPECT_EQ(problem_of_xml(html), "");
  expect_contains(html, {"Stopped on request", "rank 1 (host &lt;b&gt;) was ended by SIGKILL",
                         "last &amp; line", "disk &lt;full&gt;", "rank &lt;2&gt;", "1 snapshot was written",
                         "500 ms", "2.0 MiB", "data-head=\"Repeated steps\">3<"});
}

TEST_F(ReportTest, AFailureOfTheLastStartIsTheVerdict) {
  const std::string folder =
      make_run("mine", step_line(1, 4, 0),
               event_line("start", 0, 0) + event_line("failure", 9, 1, R"(,"cause":"it fell")"));
  expect_contains(html_of({folder}), {"<b class=\"bad\">Failed</b>", "it fell"});
}

TEST_F(ReportTest, ComparesRunsByTheKindOfTheirDifferences) {
  const std::string first =
      make_run("a/run", step_line(1, 4, 0), event_line("start", 0, 0, R"(,"ranks":"2")"),
               "[train]\nlearning_rate = 0.001\nsteps = 10\nthreads = 1\n[log]\ndir = x\n");
  const std::string second =
      make_run("b/run", step_line(1, 3, 0), event_line("start", 0, 0, R"(,"ranks":"4")"),
               "[train]\nlearning_rate = 0.003\nsteps = 10\nthreads = 2\nseed = 1337\n[new]\nkey = "
               "<1>\n[log]\ndir = y\n");
  write_text(first + "/data.hash", "corpus = 12\n");
  write_text(second + "/data.hash", "corpus = 13\n");
  const std::vector<RunFiles> runs = read_runs({first, second});
  EXPECT_EQ(runs[1].name, "b/run") << "the last part does not tell them apart";
  std::vector<std::string> names;
  const std::vector<Difference> differences = differences_between(runs);
  for (const Difference& difference : differences) names.push_back(difference.name);
  EXPECT_EQ(names, (std::vector<std::string>{"train.learning_rate", "hash of the corpus", "ranks", "new.key",
                                             "train.threads"}))
      << "train.seed has its default in both, and log.dir is left out";
  EXPECT_EQ(differences[0].values, (std::vector<std::string>{"0.001", "0.003"}));
  EXPECT_EQ(differences[3].values, (std::vector<std::string>{"", "<1>"}));
  const std::string html = report_page(runs);
  EXPECT_EQ(problem_of_xml(html), "");
  EXPECT_LT(html.find("What differs"), html.find("<svg viewBox=\"0 0 1000")) << "differences come first";
}

TEST_F(ReportTest, SaysThatRunsEndWithTheSameParameters) {
  const std::string metrics = step_line(1, 4, 0) + done_line;
  const std::string a = make_run("a", metrics), b = make_run("b", metrics);
  expect_contains(html_of({a, b}), {"same parameters, bit by bit", "Nothing: keys, data"});
  write_text(a + "/config.ini", "[train]\nseed = 7\n");
  expect_contains(html_of({a, b}), {"Nothing: keys, data", "The settings of b are not known"});
}

TEST_F(ReportTest, StaysBelowAMegabyte) {
  std::string metrics, events, settings = "[train]\n";
  for (int64_t step = 1; step <= 3000; ++step)
    metrics +=
        step_line(step, 2 + std::sin(static_cast<double>(step * step)), static_cast<double>(step),
                  R"(,"loss_scale":1024,"val_loss":)" + concat(2 + std::cos(static_cast<double>(step))));
  for (int64_t i = 0; i < 2000; ++i) {
    const auto at = static_cast<double>(10 * i);
    events += event_line("start", at, 5 * i);
    events += event_line("snapshot", at + 1, 5 * i, R"(,"problem":")" + std::string(3000, '&') + "\"");
    events += event_line("audit", at + 2, 5 * i, R"(,"wrong":")" + std::string(3000, '&') + "\"");
    events += event_line("failure", at + 9, 5 * i + 4, R"(,"cause":")" + std::string(3000, '&') + "\"");
  }
  std::string memory, facts, trace = R"({"traceEvents":[)";
  for (int i = 0; i < 400; ++i) {
    memory += concat(",\"", std::string(100, '&'), i, "\":\"", i + 1, "\"");
    facts += concat(",\"fact", i, "\":\"", std::string(100, '&'), "\"");
  }
  events += event_line("memory", 1, 1, memory) + event_line("start", 1, 1, facts);
  for (int64_t row = 0; row < 4; ++row)
    trace += concat(
        R"({"name":"thread_name","ph":"M","pid":0,"tid":)", row, R"(,"args":{"name":")",
        std::vector<const char*>{"step", "buckets", "data", "snapshots"}[static_cast<size_t>(row)], "\"}},");
  trace += R"({"name":"step","ph":"X","ts":0,"dur":99999,"pid":0,"tid":0,"args":{"number":3}})";
  for (int64_t i = 0; i < 1200; ++i)
    trace += concat(",{\"name\":\"", std::string(60, '&'), i % 100, R"(","ph":"X","ts":)", 60 * (i / 4),
                    R"(,"dur":)", 1 + i % 17, R"(,"pid":0,"tid":)", i % 4, "}");
  std::vector<std::string> folders;
  for (int i = 0; i < 12; ++i) {
    std::string own = settings;
    for (int key = 0; key < 100; ++key) own += concat("own_key_", key, " = ", i, std::string(300, '&'), "\n");
    folders.push_back(make_run(concat("run", i), metrics, events, own));
    for (int rank = 0; rank < 8; ++rank)
      write_text(concat(folders.back(), "/trace-rank", rank, ".json"), trace + "]}");
  }
  const std::string html = html_of(folders);
  EXPECT_LT(html.size(), 1'000'000U);
  EXPECT_EQ(problem_of_xml(html), "");
  EXPECT_LT(html_of({folders[0]}).size(), 1'000'000U);
}

TEST_F(ReportTest, LeavesOutNumbersThatOnlyADamagedFileHas) {
  const std::string metrics = step_line(1, 1e308, 0) + step_line(2, 4, 1) +
                              step_line(9'000'000'000'000'000'000, 3, 2) + step_line(3, -1e-310, 1e300) +
                              step_line(4, 5, 2);
  const std::string events =
      event_line("start", 1e300, 0) + event_line("start", -1.7e9, 0) + event_line("stop", 9, 2);
  const std::vector<RunFiles> runs = read_runs({make_run("mine", metrics, events)});
  EXPECT_EQ(runs[0].metrics.steps, 4);
  EXPECT_EQ(runs[0].metrics.loss.bins()[0].missing, 1);
  EXPECT_EQ(runs[0].events.size(), 2U);
  const std::string html = report_page(runs);
  EXPECT_EQ(problem_of_xml(html), "");
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST_F(ReportTest, DrawsTheMedianStepOfATrace) {
  const std::string folder = make_run("mine", step_line(1, 4, 0));
  std::string trace =
      R"({"traceEvents":[{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"step"}})";
  int64_t at = 1000;
  for (const int64_t duration : {9000, 2000, 5000, 1000, 8000}) {
    const auto span = [&](const std::string& name, int64_t begin, int64_t length, int64_t number) {
      trace += concat(",\n{\"name\":\"", name, "\",\"ph\":\"X\",\"ts\":", begin, ",\"dur\":", length,
                      ",\"pid\":0,\"tid\":0,\"args\":{\"number\":", number, "}}");
    };
    span("forward", at + 100, duration / 2, -1);
    span("step", at, duration - 10, duration);
    at += duration;
  }
  write_text(folder + "/trace-rank0.json", trace + "]}");
  write_text(folder + "/trace-rank1.json", trace.substr(0, 200));
  const std::vector<RunFiles> runs = read_runs({folder});
  ASSERT_EQ(runs[0].traces.size(), 1U) << "the torn file is skipped";
  const auto step = median_step(runs[0].traces[0]);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->number, 5000);
  EXPECT_DOUBLE_EQ(step->end - step->begin, 5.0);
  const std::vector<TracedSpan> spans = spans_within(runs[0].traces[0], *step);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_NEAR(spans[0].begin, 0.1, 1e-9);
  const std::string html = report_page(runs);
  EXPECT_EQ(problem_of_xml(html), "");
  expect_contains(html, {"class=\"block k1\" style=\"left:2.00%;width:50.00%\"", "forward: 2.5 ms"});
}

TEST_F(ReportTest, RefusesWhatIsNoRun) {
  std::filesystem::create_directories(directory_ / "empty");
  expect_contains(user_error([&] { read_runs({directory_ / "empty"}); }),
                  {"/empty is not the folder of a run", "log.dir"});
  expect_contains(user_error([&] { read_runs({directory_ / "none"}); }), {"/none is not a folder"});
  const std::string run = make_run("mine", step_line(1, 4, 0));
  expect_contains(user_error([&] { read_runs({run, run + "/."}); }), {"named twice"});
  expect_contains(user_error([&] { read_runs(std::vector<std::string>(13, run)); }), {"at most 12 runs"});
  const std::string begun = make_run("new", "");
  expect_contains(user_error([&] { read_runs({begun}); }), {"/new has nothing to report"});
  append_event(begun, "start", 0);
  EXPECT_NE(html_of({begun}).find("no step has ended yet"), std::string::npos);
}

TEST_F(ReportTest, ProgramWritesIntoTheFirstRun) {
  const std::string run = make_run("mine", step_line(1, 4, 0));
  const Outcome outcome = run_command(program("report") + " " + run);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(read_text(run + "/report.html"), html_of({run}));
  EXPECT_TRUE(outcome.out.starts_with(run + "/report.html: ")) << outcome.out;
  const std::string other = directory_ / "other.html";
  EXPECT_EQ(run_command(program("report") + " " + run + " --output " + other).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(other));
  const Outcome refused = run_command(program("report") + " " + directory_.path());
  EXPECT_EQ(refused.exit_code, exit_usage);
  EXPECT_EQ(std::ranges::count(refused.errors, '\n'), 1) << refused.errors;
}

}  // namespace
}  // namespace lockstep
