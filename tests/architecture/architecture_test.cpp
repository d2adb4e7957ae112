// SPDX-License-Identifier: Apache-2.0
// Tests that the sources follow the rules in ARCHITECTURE.md.
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "architecture/source_rules.h"

namespace lockstep::architecture {
namespace {

const std::filesystem::path repository = LOCKSTEP_SOURCE_DIR;

std::vector<SourceFile> all_files(const std::vector<std::string>& folders) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    for (SourceFile& file : cpp_files(repository, folder)) files.push_back(std::move(file));
  }
  return files;
}

void expect_none(const std::vector<Violation>& violations) {
  for (const Violation& violation : violations) ADD_FAILURE() << violation;
}

TEST(Architecture, IncludesFollowTheArrows) {
  const std::vector<SourceFile> files = all_files({"src", "apps", "bench", "examples", "tests"});
  EXPECT_GT(files.size(), 20U) << "the sources are not at " << repository;
  for (const SourceFile& file : files) expect_none(check_includes(file, repository));
  expect_none(check_mpi_files(all_files({"src"})));
}

TEST(Architecture, FilesAreShortAndQuiet) {
  for (const SourceFile& file : all_files({"src", "apps", "bench", "examples", "tests"}))
    expect_none(check_text(file));
}

TEST(Architecture, RoomsAreSmall) { expect_none(check_rooms(all_files({"src"}))); }

TEST(Architecture, PathsInThePagesExist) {
  for (const char* page : {"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"}) {
    if (std::filesystem::exists(repository / page))
      expect_none(check_paths(read_file(repository, page), repository));
  }
}

/// Returns the text of a file of the repository.
std::string text_of(const std::filesystem::path& path) {
  std::string text;
  for (const std::string& line : read_file(repository, path).lines) text += line + "\n";
  return text;
}

TEST(Architecture, APageAnswersOneQuestionInTwelveKilobytes) {
  namespace fs = std::filesystem;
  const std::map<std::string, size_t> others = {{"README.md", 9000}, {"ARCHITECTURE.md", 14000}};
  const std::set<std::string> lists = {"docs/decisions.md", "docs/tried.md"};
  std::set<std::string> pages = {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md",
                                 "bench/results/README.md"};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(repository / "docs"))
    if (entry.path().extension() == ".md") pages.insert(fs::relative(entry.path(), repository).string());
  EXPECT_GT(pages.size(), 30U);
  for (const std::string& page : pages) {
    if (lists.contains(page)) continue;
    const auto other = others.find(page);
    const size_t most = other == others.end() ? 12000 : other->second;
    EXPECT_LE(fs::file_size(repository / page), most)
        << page << ": shorten it, or give a second question a page";
  }
}

/// Returns the pages that a page links to, as paths from the root.
std::set<std::string> links_of(const std::filesystem::path& page) {
  static const std::regex link(R"(\]\(([^)#:]+\.md)[)#])");
  const std::string text = text_of(page);
  std::set<std::string> pages;
  for (std::sregex_iterator found(text.begin(), text.end(), link), end; found != end; ++found)
    pages.insert((page.parent_path() / (*found)[1].str()).lexically_normal().string());
  return pages;
}

TEST(Architecture, EveryPageIsOnTheMap) {
  namespace fs = std::filesystem;
  const std::set<std::string> map = links_of("docs/README.md");
  std::set<std::string> reached = {"docs/README.md"};
  const std::function<void(const std::set<std::string>&)> follow = [&](const std::set<std::string>& pages) {
    for (const std::string& page : pages)
      if (page.starts_with("docs/") && reached.insert(page).second) follow(links_of(page));
  };
  follow(map);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(repository / "docs")) {
    if (entry.path().extension() != ".md") continue;
    const std::string page = fs::relative(entry.path(), repository).string();
    EXPECT_TRUE(reached.contains(page)) << "no link leads from docs/README.md to " << page;
    const bool is_in_docs = entry.path().parent_path() == repository / "docs";
    EXPECT_TRUE(!is_in_docs || page == "docs/README.md" || map.contains(page))
        << "docs/README.md does not link to " << page;
  }
}

TEST(Architecture, TheVersionIsThatOfTheChangelog) {
  std::smatch found;
  const std::string changelog = text_of("CHANGELOG.md");
  ASSERT_TRUE(std::regex_search(changelog, found, std::regex("\\n## ([0-9.]+) - ")));
  const std::string version = found[1];
  EXPECT_NE(text_of("CMakeLists.txt").find("project(lockstep VERSION " + version + " "), std::string::npos);
  EXPECT_NE(text_of("packaging/spack/spack_repo/lockstep/packages/lockstep/package.py")
                .find("version(\"" + version + "\")"),
            std::string::npos);
}

std::vector<Violation> check_include_line(const std::string& path, const std::string& line) {
  return check_includes({.path = path, .lines = {line}}, repository);
}

/// A kernel without cases would be missing in the comparison of a GPU's bits with the predicted ones.
TEST(Architecture, EveryKernelOfGpusHasPredictedBits) {
  const std::string table = text_of("src/kernels/cuda/predicted.csv");
  const std::set<std::string> on_the_host = {"fill_normal", "fill_uniform"};
  const std::regex name_of_a_kernel("static constexpr const char\\* name = \"(\\w+)\"");
  int kernels = 0;
  for (const auto& entry : std::filesystem::directory_iterator(repository / "src/kernels")) {
    if (entry.path().extension() != ".h") continue;
    const std::string header = text_of(entry.path());
    for (std::sregex_iterator found(header.begin(), header.end(), name_of_a_kernel), end; found != end;
         ++found) {
      const std::string kernel = (*found)[1];
      if (on_the_host.contains(kernel)) continue;
      ++kernels;
      EXPECT_NE(table.find("\n" + kernel + ","), std::string::npos)
          << kernel << " has no case in tests/kernels/predicted";
    }
  }
  EXPECT_GT(kernels, 40);
}

/// CUDA's library and approximate instructions give bits that a CPU cannot predict.
TEST(Architecture, KernelsCallElementaryFunctionsThroughOneFile) {
  const std::regex unspecified(
      "\\b(exp|exp2|exp10|log|log2|log10|pow|erf|erfc|tanh|sin|cos|rsqrt|cbrt|expm1|log1p)f\\(|\\b(exp2|rcp)_"
      "approx\\(");
  for (const SourceFile& file : cpp_files(repository, "src/kernels/cuda")) {
    if (file.path.ends_with("device/math.cuh") || file.path.ends_with("device/ptx.cuh")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i)
      EXPECT_FALSE(std::regex_search(file.lines[i], unspecified))
          << file.path << ":" << i + 1 << " must call the functions of device/math.cuh: " << file.lines[i];
  }
}

TEST(Rules, AnIncludeAgainstTheArrowsIsCaught) {
  EXPECT_TRUE(check_include_line("src/tensor/planted.cpp", "#include \"lockstep/core/error.h\"").empty());
  EXPECT_EQ(check_include_line("src/core/planted.cpp", "#include \"lockstep/tensor/tensor.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("src/nn/planted.cpp", "#include \"lockstep/comm/world.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("src/data/planted.h", "  #  include \"lockstep/nn/module.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("src/nn/planted.cpp", "#include \"lockstep/core/no_such_file.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("src/nn/planted.cpp", "#include \"module.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("src/nn/planted.cpp", "#include \"nn/module.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("tests/nn/planted.cpp", "#include \"nn/module.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("src/nn/planted.cpp", "#include \"../core/error.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("src/tensor/planted.cpp", "#include \"lockstep/kernels/cpu/any.h\"").size(),
            1U);
  EXPECT_TRUE(check_include_line("src/lockstep.h", "#include \"lockstep/train/trainer.h\"").empty());
  EXPECT_EQ(check_include_line("src/train/planted.cpp", "#include \"lockstep/lockstep.h\"").size(), 1U);
}

TEST(Rules, AThirdPartyHeaderAwayFromHomeIsCaught) {
  EXPECT_TRUE(check_include_line("src/comm/planted.cpp", "#include <mpi.h>").empty());
  EXPECT_EQ(check_include_line("src/train/planted.cpp", "#include <mpi.h>").size(), 1U);
  EXPECT_EQ(check_include_line("src/comm/planted.h", "#include <mpi.h>").size(), 1U);
  EXPECT_TRUE(check_include_line("src/core/cuda_check.h", "#include <cuda_runtime_api.h>").empty());
  EXPECT_EQ(check_include_line("src/core/planted.h", "#include <cuda_runtime_api.h>").size(), 1U);
  EXPECT_EQ(check_include_line("src/core/planted.h", "#include \"lockstep/core/cuda_check.h\"").size(), 1U);
  EXPECT_EQ(check_include_line("src/train/planted.cpp", "#include <spdlog/spdlog.h>").size(), 1U);
  EXPECT_EQ(check_include_line("src/kernels/planted.cpp", "#include <Eigen/Core>").size(), 1U);
  EXPECT_TRUE(check_include_line("src/kernels/cpu/planted.cpp", "#include <Eigen/Core>").empty());
  EXPECT_EQ(check_include_line("src/core/planted.cpp", "#include <boost/any.hpp>").size(), 1U);
  EXPECT_TRUE(check_include_line("src/core/planted.h", "#include <vector>").empty());
  EXPECT_TRUE(check_include_line("src/core/planted.cpp", "#include <sys/mman.h>").empty());
}

TEST(Rules, AThirdFileThatKnowsMpiIsCaught) {
  const auto file = [](const std::string& name) { return SourceFile{name, {"#include <mpi.h>"}}; };
  EXPECT_TRUE(check_mpi_files({file("src/dist/a.cpp"), file("src/dist/b.cpp")}).empty());
  EXPECT_EQ(check_mpi_files({file("src/dist/a.cpp"), file("src/dist/b.cpp"), file("src/dist/c.cpp")}).size(),
            1U);
}

std::vector<Violation> check_line(const std::string& path, const std::string& line) {
  return check_text({.path = path, .lines = {"// SPDX-License-Identifier: Apache-2.0", line}});
}

TEST(Rules, ForbiddenWordsAreCaughtInCodeOnly) {
  EXPECT_EQ(check_line("src/core/planted.cpp", "  if (bad) exit(1);").size(), 1U);
  EXPECT_EQ(check_line("src/core/planted.cpp", "  std::exit (1);").size(), 1U);
  EXPECT_EQ(check_line("src/core/planted.cpp", "  std::printf(\"%d\", 1);").size(), 1U);
  for (const char* line : {"  return std::pow(beta, step);", "  return ::pow(beta, step);", "using std::exp;",
                           "  apply(std::tanh, x);", "  return expf(x);"})
    EXPECT_EQ(check_line("src/nn/planted.h", line).size(), 1U) << line;
  EXPECT_TRUE(check_line("src/kernels/cuda/planted.cu", "  return expf(x);").empty());
  EXPECT_TRUE(
      check_line("src/nn/planted.h", "  return math::exp(std::sqrt(x) + std::fma(x, y, z));").empty());
  EXPECT_EQ(check_line("src/kernels/cuda/planted.cu", "  asm volatile(\"bar.sync 0;\");").size(), 1U);
  EXPECT_TRUE(check_line("src/kernels/cuda/device/ptx.cuh", "  asm volatile(\"bar.sync 0;\");").empty());
  EXPECT_TRUE(check_line("tests/emulator/planted.cpp", "  asm(\"nop\");").empty());
  for (const char* line : {"kernel<<<1, 32>>>(x);", "__shared__ float sums[32];", "atomicAdd(&sum, x);",
                           "cudaStreamSynchronize(stream);"})
    EXPECT_EQ(check_line("src/kernels/cuda/planted.cu", line).size(), 1U) << line;
  EXPECT_TRUE(check_line("src/kernels/cuda/device/planted.cuh", "  extern __shared__ char bytes[];").empty());
  EXPECT_TRUE(check_line("apps/planted.cpp", "  std::printf(\"%d\", 1);").empty());
  EXPECT_TRUE(check_line("src/core/planted.cpp", "  // exit(1) would be wrong").empty());
  EXPECT_TRUE(check_line("src/core/planted.cpp", "  fail(\"never exit(1), \\\" printf(\");").empty());
  EXPECT_TRUE(
      check_line("src/core/planted.cpp", "  std::snprintf(text, 9, \"%d\", on_exit(1'000));").empty());
}

TEST(Rules, AReadOfTheEnvironmentOutsideOfItsHeaderIsCaught) {
  for (const char* line : {"  if (std::getenv(\"HOME\")) return;", "  ::secure_getenv (name);"})
    for (const char* path : {"src/core/planted.cpp", "apps/planted.cpp", "bench/planted.cpp"})
      EXPECT_EQ(check_line(path, line).size(), 1U) << path << line;
  EXPECT_TRUE(check_line("src/core/environment.h", "  const char* value = std::getenv(name);").empty());
  EXPECT_TRUE(check_line("src/core/planted.cpp", "  ::setenv(name, value, 1); ::unsetenv(name);").empty());
  EXPECT_TRUE(check_line("tests/core/planted.cpp", "  std::getenv(name);").empty());
}

TEST(Rules, AMissingLicenceAndALongFileAreCaught) {
  EXPECT_EQ(check_text({.path = "src/core/planted.h", .lines = {"#pragma once"}}).size(), 1U);
  SourceFile file{.path = "bench/planted.cpp", .lines = {"// SPDX-License-Identifier: Apache-2.0"}};
  file.lines.resize(400);
  EXPECT_TRUE(check_text(file).empty());
  file.lines.resize(401);
  EXPECT_EQ(check_text(file).size(), 1U);
}

TEST(Rules, ARoomThatHasGrownIsCaught) {
  const auto file = [](const std::string& path, size_t lines) {
    return SourceFile{path, std::vector<std::string>(lines)};
  };
  EXPECT_TRUE(
      check_rooms({file("src/net/a.h", 1000), file("src/net/b.cpp", 2000), file("tests/net/c.cpp", 9)})
          .empty());
  EXPECT_TRUE(check_rooms({file("src/kernels/cpu/a.cpp", 3001), file("src/core/a.cpp", 1)}).empty());
  const auto grown =
      check_rooms({file("src/net/a.h", 1001), file("src/net/b.cpp", 2000), file("src/core/a.h", 1)});
  ASSERT_EQ(grown.size(), 1U);
  EXPECT_EQ(grown[0].file, "src/net");
}

TEST(Rules, APathThatDoesNotExistIsCaught) {
  const auto check = [](const std::string& line) {
    return check_paths({.path = "ARCHITECTURE.md", .lines = {line}}, repository).size();
  };
  EXPECT_EQ(
      check("`src/core/error.h`, `core/error.h`, `core/{error,dtype}.h`, `core/error`, `kernels/<op>.h`"),
      0U);
  EXPECT_EQ(check("`nn / dist`, `train.steps`, `model.safetensors`, `build/cpu/bin/train_gpt`, `a < b`"), 0U);
  EXPECT_EQ(check("`src/core/no_such_file.h` and `core/{error,no_such_file}.h`"), 2U);
  EXPECT_EQ(check("`kernels/no_such_folder/<op>.cpp`, `NOSUCHPAGE.md`"), 2U);
}

}  // namespace
}  // namespace lockstep::architecture
