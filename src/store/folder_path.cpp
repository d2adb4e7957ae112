// SPDX-License-Identifier: Apache-2.0
#include "store/folder_path.h"

#include <system_error>

#include "core/error.h"
#include "core/log.h"

namespace lockstep {

namespace fs = std::filesystem;

std::string free_name(const std::string& path) {
  int number = 1;
  while (fs::exists(concat(path, ".", number))) ++number;
  return concat(path, ".", number);
}

std::filesystem::path place_of(const std::string& path) {
  fs::path place = fs::weakly_canonical(fs::absolute(path));
  return place.has_filename() ? place : place.parent_path();
}

std::string plain(const std::string& path) {
  const std::string normal = fs::path(path).lexically_normal().string();
  return normal.size() > 1 && normal.ends_with('/') ? normal.substr(0, normal.size() - 1) : normal;
}

void rename_aside(const std::string& key, const std::string& path) {
  const std::string aside = free_name(path);
  std::error_code problem;
  fs::rename(path, aside, problem);
  require(!problem, key, ": ", path, " holds an earlier run and cannot be moved to ", aside, ": ",
          problem.message(), "; choose another ", key);
  log_info(concat("the earlier run in ", path, " is now in ", aside));
}

}  // namespace lockstep
