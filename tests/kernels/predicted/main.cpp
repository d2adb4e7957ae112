// SPDX-License-Identifier: Apache-2.0

// Computes the cases of the project's own kernels on the GPU of this process and prints a line for each:
// kernel,dtype,case,hash. With --compare it compares the hashes with a table of predicted ones.

#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "kernels/predicted/cases.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/hash.h"

namespace lockstep::predicted {
namespace {

/// Returns the column of the table for a GPU. Tensor cores before compute capability 9.0 add in another
/// order.
const char* column_of(const GpuProperties& gpu) { return gpu.major < 9 ? "sm_80" : "sm_90"; }

std::string key_of(const Case& one) { return concat(one.kernel, ",", one.dtype, ",", one.name); }

/// Reads a column of a table: hash by "kernel,dtype,case".
std::map<std::string, std::string> read_table(const std::string& path, const std::string& column) {
  std::ifstream file(path);
  std::string line;
  require(std::getline(file, line) && line == "kernel,dtype,case,sm_80,sm_90", path,
          ": this is not a table of predicted bits");
  std::map<std::string, std::string> hashes;
  while (std::getline(file, line)) {
    const size_t last = line.rfind(','), before = line.rfind(',', last - 1);
    require(before != std::string::npos, path, ": a line has too few columns: ", line);
    hashes[line.substr(0, before)] =
        column == "sm_80" ? line.substr(before + 1, last - before - 1) : line.substr(last + 1);
  }
  return hashes;
}

/// The hashes of a case's results. Arrays that begin one element past an aligned address give the second. It
/// is that of aligned arrays if the kernel takes no others.
struct Hashes {
  std::string aligned, shifted;
};

Hashes hashes_of(const Case& one, const Stream& stream) {
  const auto hash_at = [&](int64_t shift) {
    Arrays arrays(stream, shift);
    one.run(arrays);
    return hash_text(arrays.hash());
  };
  const std::string aligned = hash_at(0);
  return {aligned, one.takes_any_address() ? hash_at(1) : aligned};
}

int print(const Stream& stream) {
  for (const Case& one : all_cases()) {
    const auto [aligned, shifted] = hashes_of(one, stream);
    expect(aligned == shifted, key_of(one), ": the bits depend on addresses: ", aligned, " and ", shifted);
    std::printf("%s,%s\n", key_of(one).c_str(), aligned.c_str());
  }
  return 0;
}

struct Verdict {
  int matches = 0, cases = 0;
};

/// Compares with the table and prints a line per kernel. Returns 1 if a hash differs.
int compare(const std::string& table, const Stream& stream, const GpuProperties& gpu) {
  const char* const column = column_of(gpu);
  const auto predicted = read_table(table, column);
  std::map<std::string, Verdict> verdicts;
  for (const Case& one : all_cases()) {
    const auto found = predicted.find(key_of(one));
    require(found != predicted.end(), table, " has no case '", key_of(one),
            "': scripts/predict.sh makes the table anew");
    const auto [aligned, shifted] = hashes_of(one, stream);
    const bool is_match = aligned == found->second && shifted == found->second;
    Verdict& verdict = verdicts[one.kernel];
    ++verdict.cases;
    verdict.matches += is_match;
    if (!is_match)
      std::printf("  %s: %s here, %s with arrays that are not aligned, %s predicted\n", key_of(one).c_str(),
                  aligned.c_str(), shifted.c_str(), found->second.c_str());
  }
  int matches = 0, cases = 0;
  for (const auto& [kernel, verdict] : verdicts) {
    std::printf("%-26s %s (%d of %d cases)\n", kernel.c_str(),
                verdict.matches == verdict.cases ? "match" : "DIFFERS", verdict.matches, verdict.cases);
    matches += verdict.matches;
    cases += verdict.cases;
  }
  std::printf("predicted bits of %s (%s): %d of %d cases match\n", column, gpu.name.c_str(), matches, cases);
  return matches == cases ? 0 : 1;
}

int run(const std::vector<std::string>& arguments) {
  const bool compares = arguments.size() == 2 && arguments[0] == "--compare";
  require(compares || arguments.empty(), "usage: predicted_bits [--compare TABLE]");
  require(LOCKSTEP_IS_EXACT == 1,
          "this build's kernels are not exact: configure with -DLOCKSTEP_CUDA_EXACT=ON");
  require(count_gpus() > 0, why_no_gpu());
  const Stream stream = make_gpu_stream(0);
  const GpuProperties gpu = gpu_properties(0);
  return compares ? compare(arguments[1], stream, gpu) : print(stream);
}

}  // namespace
}  // namespace lockstep::predicted

int main(int count, char** arguments) {
  try {
    return lockstep::predicted::run({arguments + 1, arguments + count});
  } catch (const lockstep::UserError& problem) {
    std::fprintf(stderr, "predicted_bits: %s\n", problem.what());
    return 2;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "predicted_bits: %s\n", problem.what());
    return 1;
  }
}
