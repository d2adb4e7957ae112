// SPDX-License-Identifier: Apache-2.0
#include "architecture/source_rules.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <ostream>
#include <regex>
#include <set>
#include <stdexcept>

#include "architecture/rooms.h"

namespace lockstep::architecture {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_lines = 400;
constexpr size_t most_lines_of_room = 3000;

struct Library {
  const char* name;
  const char* header;              ///< regular expression for the library's headers
  std::vector<const char*> homes;  ///< path prefixes of the files that may include it
};

const std::vector<Library> libraries = {
    {"MPI", "mpi\\.h", {"src/comm/", "bench/", "tests/dist/", "tests/emulator/"}},
    {"PMIx", "pmix.*\\.h", {"src/pmix/"}},
    {"spdlog", "(spdlog|fmt)/.*", {"src/core/log.cpp"}},
    {"nlohmann-json",
     "nlohmann/.*",
     {"src/json/", "src/store/", "src/tensor/safetensors.cpp", "src/tokenizer/", "src/data/", "src/metrics/",
      "src/snapshot/", "src/replay/", "src/models/", "src/huggingface/", "src/doctor/", "src/events/",
      "src/report/", "src/elastic/", "src/hosting/", "src/writing/", "apps/", "bench/", "tests/"}},
    {"CLI11", "CLI/.*", {"src/program/command_line.cpp", "src/elastic/launch_options.cpp"}},
    {"libcurl", "curl/.*", {"src/store/"}},
    {"pugixml", "pugixml\\.hpp", {"src/store/"}},
    {"OpenSSL", "openssl/.*", {"src/store/", "src/net/"}},
    {"xxHash", "xxh.*\\.h", {"src/core/hash.cpp"}},
    {"Eigen", "(unsupported/)?Eigen/.*", {"src/kernels/cpu/", "tests/", "bench/"}},
    {"Google Benchmark", "benchmark/.*", {"bench/"}},
    {"GoogleTest", "g(test|mock)/.*", {"tests/"}},
    {"CUDA",
     "(cuda|cublas|cudnn|nv|vector_types).*",
     {"src/core/", "src/kernels/cuda/", "src/comm/nccl_communicator.cpp", "tests/emulator/", "bench/"}},
    {"NCCL", "nccl\\.h", {"src/comm/nccl_communicator.cpp", "tests/emulator/", "bench/"}},
};

/// Headers of standard C++, POSIX, Linux and intrinsics. C headers have their C++ names.
const std::regex platform(
    "[a-z0-9_]+|(sys|linux|net|netinet|arpa)/"
    "[a-z0-9_]+\\.h|[a-z0-9]*intrin\\.h|(arm_neon|cpuid|cxxabi|dirent|dlfcn|elf|errno|fcntl|glob|ifaddrs|"
    "link|malloc|"
    "netdb|poll|pthread|pwd|sched|signal|spawn|stdint|stdlib|termios|time|ucontext|unistd|execinfo)\\.h");
const std::regex include_line("^\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"].*");

bool starts_with_any(const std::string& text, const std::vector<const char*>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* prefix) { return text.starts_with(prefix); });
}

constexpr const char* private_header = "core/cuda_check.h";

std::string first_folder(const std::string& path) { return path.substr(0, path.find('/')); }

/// Returns the room of a file below src/, or "" for other files.
std::string room_of(const std::string& path) {
  return path.starts_with("src/") ? first_folder(path.substr(4)) : std::string();
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "nothing" : text;
}

/// Returns true for a header of src/, except the one with CUDA types. Public headers may lead to all of them.
bool is_public_header(const SourceFile& file) {
  return file.path.starts_with("src/") && (file.path.ends_with(".h") || file.path.ends_with(".hpp")) &&
         file.path != std::string("src/") + private_header;
}

std::string system_include_error(const SourceFile& file, const std::string& header) {
  if (std::regex_match(header, platform)) return "";
  if (header == "lockstep/lockstep.h" && file.path.starts_with("examples/")) return "";
  for (const Library& library : libraries) {
    if (!std::regex_match(header, std::regex(library.header))) continue;
    if (!starts_with_any(file.path, library.homes)) return std::string(library.name) + " is not at home here";
    if (is_public_header(file))
      return std::string(library.name) + " in a header: every user of the header would need it";
    return "";
  }
  return "<" + header + "> belongs to no library that has a home; give it one in tests/architecture";
}

bool exists_below(const fs::path& root, std::initializer_list<fs::path> folders, const std::string& header) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](const fs::path& folder) { return fs::exists(root / folder / header); });
}

/// `written` is the path of an include. Those of src/ begin with lockstep/.
std::string own_include_error(const SourceFile& file, const std::string& written, const fs::path& root) {
  constexpr const char* prefix = "lockstep/";
  const std::string from = room_of(file.path);
  if (!written.starts_with(prefix)) {
    const fs::path beside = fs::path(file.path).parent_path();
    if (!from.empty()) return "\"" + written + "\" lacks the prefix lockstep/";
    return exists_below(root, {"tests", "", beside}, written) ? "" : "\"" + written + "\" does not exist";
  }
  const std::string header = written.substr(std::strlen(prefix)), to = first_folder(header);
  const std::string missing = exists_below(root, {"src"}, header) ? "" : "src/" + header + " does not exist";
  if (from.empty()) return missing;
  if (header == private_header && is_public_header(file)) return "a public header must not lead to CUDA";
  if (!rooms.contains(to)) return "\"" + header + "\" is in no room of src/";
  if (from != to && rooms.contains(from) && !rooms.at(from).contains(to))
    return from + " must not see " + to + " (it may see " + joined(rooms.at(from)) + ")";
  const bool backend = header.starts_with("kernels/cpu/") || header.starts_with("kernels/cuda/");
  if (backend && from != "kernels") return "only kernels/ sees a backend's headers";
  return missing;
}

/// A filter that removes comments and the contents of string literals, so that rules see only code.
class CodeOnly {
 public:
  std::string operator()(const std::string& line) {
    std::string code;
    for (size_t at = 0; at < line.size(); ++at) {
      if (in_comment_) {
        if (line.compare(at, 2, "*/") == 0) {
          in_comment_ = false;
          ++at;
        }
      } else if (line.compare(at, 2, "//") == 0) {
        break;
      } else if (line.compare(at, 2, "/*") == 0) {
        in_comment_ = true;
        ++at;
      } else if (line[at] == '"' || (line[at] == '\'' && !is_digit_separator(line, at))) {
        at = end_of_literal(line, at);
        code += "\"\"";
      } else {
        code += line[at];
      }
    }
    return code;
  }

 private:
  static bool is_digit_separator(const std::string& line, size_t at) {
    return at > 0 && std::isxdigit(static_cast<unsigned char>(line[at - 1])) != 0;
  }

  static size_t end_of_literal(const std::string& line, size_t at) {
    const char quote = line[at++];
    while (at < line.size() && line[at] != quote) at += line[at] == '\\' ? 2 : 1;
    return at;
  }

  bool in_comment_ = false;
};

struct ForbiddenWord {
  std::regex pattern;
  const char* message;
};

const std::string elementary =
    "(exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|a?(sin|cos|tan)h?|atan2|erfc?|cbrt|hypot|[lt]"
    "gamma)";
constexpr const char* elementary_message =
    "C libraries differ in the last bits of it: use kernels/elementary.h";

const std::array<ForbiddenWord, 3> forbidden_in_library = {{
    {std::regex("(^|[^A-Za-z0-9_.>])(std::)?(exit|abort|quick_exit)\\s*\\("),
     "a library throws, it does not end the process"},
    {std::regex("(^|[^A-Za-z0-9_])(printf|fprintf|puts|putchar)\\s*\\("), "print through core/log.h"},
    {std::regex("(^|[^A-Za-z0-9_>])(std)?::" + elementary + "[fl]?\\b"), elementary_message},
}};
// CUDA's device functions have these names, so the rule is for host code only.
const ForbiddenWord forbidden_on_the_host = {std::regex("(^|[^A-Za-z0-9_:.>])" + elementary + "[fl]\\s*\\("),
                                             elementary_message};
const ForbiddenWord reads_environment = {std::regex("getenv\\s*\\("),
                                         "read environment variables through core/environment.h"};
// Code that the emulator cannot run, or that makes a kernel's results differ between runs.
constexpr const char* device_folder = "src/kernels/cuda/device/";
const std::array<ForbiddenWord, 4> forbidden_in_kernels = {{
    {std::regex("<<<"), "launch through cuda::launch_grid"},
    {std::regex("(^|[^A-Za-z0-9_])__shared__"), "shared memory comes from cuda::dynamic_shared"},
    {std::regex("(^|[^A-Za-z0-9_])atomic(Add|Sub|Exch|CAS)\\s*\\("),
     "an atomic's order shows in the bits of a sum"},
    {std::regex("cuda(Device|Stream|Event)Synchronize"), "a kernel's launch does not wait for it"},
}};
const std::regex assembly("(^|[^A-Za-z0-9_])(asm|__asm__|__asm)\\s*(volatile|__volatile__)?\\s*\\(");

/// Expands `a/{b,c}.h` to `a/b.h` and `a/c.h`.
std::vector<std::string> expand_braces(const std::string& text) {
  const size_t open = text.find('{');
  const size_t close = text.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return {text};
  std::vector<std::string> all;
  size_t from = open + 1;
  while (from <= close) {
    const size_t to = std::min(text.find(',', from), close);
    for (const std::string& tail : expand_braces(text.substr(close + 1)))
      all.push_back(text.substr(0, open) + text.substr(from, to - from) + tail);
    from = to + 1;
  }
  return all;
}

/// Returns the path that a backticked token names, or an empty path if the token is not a path.
fs::path named_place(std::string token) {
  static const std::set<std::string> top = {"src",     "apps",    "bench", "examples", "tests",
                                            "configs", "scripts", "docs",  "cmake",    ".ci"};
  static const std::regex shape("[A-Za-z0-9_./*<>-]+");
  static const std::regex root_file("[A-Z][A-Za-z]+\\.(md|txt|json)");
  if (!std::regex_match(token, shape)) return {};
  if (std::regex_match(token, root_file)) return token;
  const std::string folder = first_folder(token);
  if (folder.size() == token.size() || (!top.contains(folder) && !rooms.contains(folder))) return {};
  const size_t placeholder = token.find_first_of("*<");
  if (placeholder != std::string::npos) token = token.substr(0, token.rfind('/', placeholder));
  return rooms.contains(folder) ? fs::path("src") / token : fs::path(token);
}

bool place_exists(const fs::path& place) {
  return fs::exists(place) || fs::exists(place.string() + ".h") || fs::exists(place.string() + ".cpp");
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Violation& violation) {
  return out << violation.file << ":" << violation.line << ": " << violation.message;
}

SourceFile read_file(const fs::path& root, const std::string& path) {
  std::ifstream in(root / path);
  if (!in) throw std::runtime_error("cannot read " + (root / path).string());
  SourceFile file{.path = path, .lines = {}};
  for (std::string line; std::getline(in, line);) file.lines.push_back(line);
  return file;
}

std::vector<SourceFile> cpp_files(const fs::path& root, const std::string& folder) {
  static const std::set<std::string> extensions = {".h", ".hpp", ".cpp", ".cu", ".cuh"};
  std::vector<std::string> paths;
  if (fs::exists(root / folder)) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && extensions.contains(entry.path().extension().string()))
        paths.push_back(entry.path().lexically_relative(root).generic_string());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<SourceFile> files;
  for (const std::string& path : paths) files.push_back(read_file(root, path));
  return files;
}

std::vector<Violation> check_includes(const SourceFile& file, const fs::path& root) {
  std::vector<Violation> violations;
  for (size_t line = 0; line < file.lines.size(); ++line) {
    std::smatch match;
    if (!std::regex_match(file.lines[line], match, include_line)) continue;
    const std::string error =
        match[1] == "<" ? system_include_error(file, match[2]) : own_include_error(file, match[2], root);
    if (!error.empty()) violations.push_back({file.path, static_cast<int>(line) + 1, error});
  }
  return violations;
}

std::vector<Violation> check_text(const SourceFile& file) {
  std::vector<Violation> violations;
  if (file.lines.empty() || file.lines.front() != "// SPDX-License-Identifier: Apache-2.0")
    violations.push_back({file.path, 1, "the first line is not the SPDX line"});
  if (file.lines.size() > most_lines)
    violations.push_back({file.path, 0, std::to_string(file.lines.size()) + " lines; the limit is 400"});

  const bool library = file.path.starts_with("src/");
  const bool reads_by_header =
      starts_with_any(file.path, {"src/", "apps/", "bench/"}) && file.path != "src/core/environment.h";
  CodeOnly code_only;
  for (size_t line = 0; line < file.lines.size(); ++line) {
    const std::string code = code_only(file.lines[line]);
    const int number = static_cast<int>(line) + 1;
    for (const ForbiddenWord& word : forbidden_in_library) {
      if (library && std::regex_search(code, word.pattern))
        violations.push_back({file.path, number, word.message});
    }
    if (library && !file.path.starts_with("src/kernels/cuda/") &&
        std::regex_search(code, forbidden_on_the_host.pattern))
      violations.push_back({file.path, number, forbidden_on_the_host.message});
    if (reads_by_header && std::regex_search(code, reads_environment.pattern))
      violations.push_back({file.path, number, reads_environment.message});
    if (library && !file.path.ends_with("/ptx.cuh") && std::regex_search(code, assembly))
      violations.push_back({file.path, number, "assembly outside ptx.cuh"});
    const bool kernel = file.path.starts_with("src/kernels/cuda/") && !file.path.starts_with(device_folder);
    for (const ForbiddenWord& word : forbidden_in_kernels) {
      if (kernel && std::regex_search(code, word.pattern))
        violations.push_back({file.path, number, word.message});
    }
  }
  return violations;
}

std::vector<Violation> check_rooms(const std::vector<SourceFile>& files) {
  std::map<std::string, size_t> lines;
  for (const SourceFile& file : files)
    if ((file.path.ends_with(".h") || file.path.ends_with(".cpp")) &&
        !file.path.starts_with("src/tensor/ops/"))
      lines[room_of(file.path)] += file.lines.size();
  // kernels/ and tensor/ops/ have no limit, because they need a file for every operation.
  lines.erase("kernels");
  std::vector<Violation> violations;
  for (const auto& [room, count] : lines)
    if (!room.empty() && count > most_lines_of_room)
      violations.push_back({"src/" + room, 0, std::to_string(count) + " lines; the limit of a room is 3000"});
  return violations;
}

std::vector<Violation> check_mpi_files(const std::vector<SourceFile>& files) {
  std::vector<std::string> users;
  for (const SourceFile& file : files) {
    const bool uses = std::any_of(file.lines.begin(), file.lines.end(), [](const std::string& line) {
      std::smatch match;
      return std::regex_match(line, match, include_line) && match[2] == "mpi.h";
    });
    if (uses) users.push_back(file.path);
  }
  if (users.size() <= 2) return {};
  return {
      {users.back(), 0, "MPI is included by " + std::to_string(users.size()) + " files; two may know it"}};
}

std::vector<Violation> check_paths(const SourceFile& page, const fs::path& root) {
  static const std::regex backticked("`([^`]+)`");
  std::vector<Violation> violations;
  bool in_block = false;
  for (size_t line = 0; line < page.lines.size(); ++line) {
    const std::string& text = page.lines[line];
    if (text.starts_with("```")) in_block = !in_block;
    if (in_block) continue;
    for (std::sregex_iterator match(text.begin(), text.end(), backticked), end; match != end; ++match) {
      for (const std::string& token : expand_braces((*match)[1])) {
        const fs::path place = named_place(token);
        if (!place.empty() && !place_exists(root / place))
          violations.push_back({page.path, static_cast<int>(line) + 1, "`" + token + "` does not exist"});
      }
    }
  }
  return violations;
}

}  // namespace lockstep::architecture
