// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <unistd.h>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/doctor/doctor.h"
#include "lockstep/store/object_store.h"
#include "lockstep/train/language_task.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t mib = int64_t{1} << 20;
constexpr int64_t probe_bytes = 8 * mib;
constexpr double slow_mib_per_second = 20.0;

/// Returns the part of the path that exists. The rest will be created there.
std::string existing_part(const std::string& path) {
  fs::path part = fs::absolute(path);
  std::error_code ignored;
  while (part.has_relative_path() && !fs::exists(part, ignored)) part = part.parent_path();
  return part.string();
}

int64_t free_bytes(const std::string& folder) {
  std::error_code problem;
  const fs::space_info space = fs::space(folder, problem);
  return problem ? 0 : static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX));
}

/// Returns the MiB per second of a synced write. Throws Error with the reason if nothing can be written.
double measure_writing(const std::string& folder) {
  const std::string probe = concat(folder, "/.lockstep-doctor-", ::getpid());
  const std::string contents(static_cast<size_t>(probe_bytes), 'x');
  const Clock::time_point begin = Clock::now();
  write_file(probe, contents);
  const double seconds = seconds_since(begin);
  ::unlink(probe.c_str());
  return static_cast<double>(probe_bytes) / static_cast<double>(mib) / seconds;
}

/// Writes, reads, lists and deletes a small object, as snapshots do. Names the first failure.
Finding check_bucket(const std::string& address) {
  const std::string name = "bucket snapshot.path";
  const std::string key = concat("lockstep-doctor-", host_name(), "-", ::getpid());
  const std::string contents = "written by doctor, may be deleted";
  std::string doing = "opening it";
  try {
    // A run would wait for a server that does not answer. This check reports it.
    const std::unique_ptr<ObjectStore> store = open_store(address, /*may_wait=*/false);
    doing = "writing an object";
    store->put_text(key, contents);
    doing = "reading it back";
    expect(store->get(key) == contents, "its contents are not those that were written");
    doing = "listing";
    const std::vector<std::string> keys = store->list(key);
    expect(std::find(keys.begin(), keys.end(), key) != keys.end(), "it is not in the list");
    doing = "deleting it";
    store->remove(key);
    expect(!store->exists(key), "it is still there");
  } catch (const Error& problem) {
    return {
        name, Verdict::problem, concat(address, ": ", doing, ": ", problem.what()),
        "snapshots need s3:PutObject, s3:GetObject, s3:ListBucket and s3:DeleteObject there; check bucket, "
        "credentials and AWS_ENDPOINT_URL"};
  }
  return {name, Verdict::ok, concat(address, ": written, read, listed and deleted")};
}

}  // namespace

int64_t estimate_parameters(const Job& job) {
  // The vocabulary is not known before the data are read. A character tokenizer has about this many tokens.
  const std::unique_ptr<LanguageModel> model =
      make_model(job, job.model.vocab_size > 0 ? job.model.vocab_size : 128);
  int64_t elements = 0;  // matrices and tables are nearly all of it
  for (const NamedTensor& parameter : model->parameters())
    if (parameter.tensor.shape().rank() == 2) elements += parameter.tensor.size();
  return elements;
}

Finding check_folder(const std::string& key, const std::string& path, int64_t wanted_bytes) {
  const std::string name = "disk " + key;
  const std::string folder = existing_part(path);
  const std::string choose = concat("choose another ", key, ", or make this one writable");
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    return {name, Verdict::problem, concat(path, ": ", folder, " is not a folder"), choose};
  double speed = 0.0;
  try {
    speed = measure_writing(folder);
  } catch (const Error& problem) {
    return {name, Verdict::problem, concat(path, ": ", problem.what()), choose};
  }
  const int64_t available = free_bytes(folder);
  const std::string found =
      concat(path, ": ", bytes_text(available), " free, ", static_cast<int64_t>(speed), " MiB/s with fsync");
  if (available < wanted_bytes)
    return {name, Verdict::warning, found,
            concat("about ", bytes_text(wanted_bytes),
                   " will be written: free some space, or lower snapshot.keep")};
  if (speed < slow_mib_per_second)
    return {name, Verdict::warning, found,
            concat("this is slow: snapshots take long to reach the disk; choose a faster one for ", key)};
  return {name, Verdict::ok, found};
}

Finding check_shared_memory(const std::string& folder, int64_t wanted_bytes) {
  const std::string name = "shared memory";
  const std::string probe = concat(folder, "/.lockstep-doctor-", ::getpid());
  std::string problem;
  try {
    map_file(probe, mib, true);
  } catch (const Error& failure) {
    problem = failure.what();
  }
  ::unlink(probe.c_str());
  if (!problem.empty())
    return {name, Verdict::problem, problem,
            concat("mount a tmpfs there (mount -t tmpfs tmpfs ", shell_quoted(folder),
                   "); MPI needs it as well")};
  const int64_t available = free_bytes(folder);
  const std::string found = concat(folder, ": ", bytes_text(available), " free, about ",
                                   bytes_text(wanted_bytes), " needed for the gradients of this host");
  if (available >= wanted_bytes) return {name, Verdict::ok, found};
  return {name, Verdict::warning, found,
          concat("gradients will be sent as messages, which is slower; enlarge it (docker run --shm-size=",
                 wanted_bytes / mib + 64, "m, mount -o remount,size=", wanted_bytes / mib + 64, "m ", folder,
                 ")")};
}

std::vector<Finding> check_storage(const Job& job, const std::string& shared_memory, int ranks_of_host,
                                   bool writes_snapshots) {
  const int64_t parameters = estimate_parameters(job);
  // A snapshot has weights and two moments of four bytes. The best one and the one being written are added to
  // the kept ones.
  const int64_t snapshots = (job.snapshots.keep + 2) * 12 * parameters;
  std::vector<Finding> findings = {check_folder("log.dir", job.log.dir, 16 * mib)};
  if (const std::string path = job.snapshot_place(); writes_snapshots && !path.empty()) {
    const std::optional<std::string> folder = local_path(path);
    findings.push_back(folder ? check_folder("snapshot.path", *folder, snapshots) : check_bucket(path));
  }
  if (job.compute.device != Device::cuda)
    findings.push_back(check_shared_memory(shared_memory, ranks_of_host * 4 * parameters + mib));
  return findings;
}

}  // namespace lockstep
