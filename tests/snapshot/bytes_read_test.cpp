// SPDX-License-Identifier: Apache-2.0
// A snapshot is read once: by each rank what it holds, or by rank 0 for all.
#include <algorithm>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/huggingface/source_model.h"
#include "lockstep/snapshot/run_folder.h"
#include "tests/support/held_tensors.h"
#include "tests/support/tiny_training.h"

namespace {

thread_local int64_t bytes_read = 0;

}  // namespace

/// Replaces the C library's function, with which FolderStore reads. Counts the bytes of snapshots' files that
/// this thread reads, which is one rank.
extern "C" ssize_t pread(int file, void* to, size_t bytes, off_t begin) {
  const ssize_t count = ::syscall(SYS_pread64, file, to, bytes, begin);
  std::error_code ignored;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), ignored);
  if (path.string().find("/snapshots/step-") != std::string::npos) bytes_read += std::max<int64_t>(count, 0);
  return count;
}

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The bytes of state.json, headers and texts, each read at most three times, and the ends of blocks.
constexpr int64_t most_besides = 300'000;

int64_t bytes_of_files(const std::string& folder, const std::string& end) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().string().ends_with(end)) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

/// Expects that a rank has read at least `share` bytes, and not much more.
void expect_share(int64_t share, const std::string& what) {
  EXPECT_GE(bytes_read, share) << what;
  EXPECT_LE(bytes_read, share + most_besides) << what;
}

class BytesRead : public testing::Test {
 protected:
  static const std::vector<std::pair<std::string, Shape>>& shapes() {
    static const std::vector<std::pair<std::string, Shape>> shapes = {{"large", {1200, 1500}},
                                                                      {"small", {3}}};
    return shapes;
  }
  static HeldTensors tensors_of(int ranks, HeldTensors::Placement values) {
    return {shapes(), {"exp_avg", "exp_avg_sq"}, ranks, values, HeldTensors::owned_ranges};
  }

  void save(int64_t step) const {
    SnapshotStore store(config_.snapshot_place(), 5);
    HeldTensors tensors = tensors_of(1, HeldTensors::everything);
    tensors.count(0, static_cast<double>(step));
    Snapshot snapshot;
    snapshot.step = step;
    snapshot.configuration = to_ini(config_);
    save_snapshot(store, snapshot, tensors);
  }

  TemporaryDirectory directory_;
  Job config_ = [this] {
    Job job;
    job.length.steps = 100;
    job.log.dir = directory_ / "run";
    job.snapshots.path = directory_ / "run/snapshots";
    return job;
  }();
};

TEST_F(BytesRead, OfARunThatResumesAreEachRanksShare) {
  save(5);
  const QuietStderr quiet;
  for (const int ranks : {1, 2, 3})
    for (const auto values : {HeldTensors::everything, HeldTensors::owned_ranges})
      run_ranks(ranks, [&](Communicator& communicator) {
        const World world(communicator.shared_from_this());
        HeldTensors tensors = tensors_of(ranks, values);
        const Artifacts artifacts;
        bytes_read = 0;
        RunFolder(request_of(config_, artifacts), world).load(tensors);
        int64_t share = 0;
        for (const auto& [buffer, range] : tensors.ranges_set()) share += 4 * range.size();
        expect_share(share, concat("rank ", world.rank(), " of ", ranks));
      });
}

TEST_F(BytesRead, OfAFolderThatOneRankSeesAreReadByItForAll) {
  save(5);
  const QuietStderr quiet;
  run_ranks(3, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    Job job = config_;
    if (world.rank() == 2) job.snapshots.path = directory_ / "elsewhere";
    HeldTensors tensors = tensors_of(3, HeldTensors::owned_ranges);
    const Artifacts artifacts;
    bytes_read = 0;
    RunFolder folder(request_of(job, artifacts), world);
    folder.load(tensors);
    EXPECT_FALSE(folder.is_shared());
    if (world.is_first())
      expect_share(bytes_of_files(config_.snapshot_place() + "/step-00000005", ".safetensors"), "rank 0");
    else
      EXPECT_EQ(bytes_read, 0) << "rank " << world.rank();
  });
}

/// Runs a training like train_gpt, on ranks that are threads. Returns what each rank has read of snapshots.
std::vector<int64_t> train_and_count(int ranks, const Job& settings) {
  const QuietStderr quiet;
  std::vector<int64_t> read(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    Job job = settings;
    job.compute.threads = 1;
    bytes_read = 0;
    job = resolve(job, world);
    const auto source = take_source(job, world);
    const LanguageData data = language_data(job, world, source.get());
    const auto model = make_model(job, data.vocabulary_size);
    EXPECT_EQ(train(job, world, LanguageTask(job, *model, data, source.get())), 0);
    read[static_cast<size_t>(world.rank())] = bytes_read;
  });
  return read;
}

TEST_F(BytesRead, OfARunThatBeganWithAModelAreEachRanksShareToo) {
  write_text(directory_ / "text", sample_text(100));
  Job first = tiny_config(directory_, 2);
  first.text.dataset = directory_ / "text";
  first.model.n_embd = 256;
  first.validation.eval_every = -1;
  first.length.steps = first.schedule.warmup_steps = 1;
  first.log.dir = directory_ / "first";
  first.snapshots = SnapshotOptions{.path = directory_ / "first/snapshots"};
  train_and_count(1, first);
  const std::string found = first.snapshot_place() + "/step-00000001";
  const int64_t values = bytes_of_files(found, "model.safetensors"),
                states = bytes_of_files(found, "optimizer.safetensors");
  EXPECT_GT(values, 8 * most_besides);

  bytes_read = 0;
  load_model(SourceModel(first.log.dir, World::alone()));
  expect_share(values, "a model that is loaded for generating");

  Job next = first;
  next.model = ModelOptions{};
  next.model.from = first.log.dir;
  next.log.dir = directory_ / "run";
  next.snapshots.path = directory_ / "run/snapshots";
  const std::vector<int64_t> at_its_begin = train_and_count(2, next);
  EXPECT_LE(at_its_begin[0], values + most_besides) << "rank 0 sends the values to the others";
  EXPECT_EQ(at_its_begin[1], 0);
  next.length.steps = 2;
  for (const Shard stage : {Shard::none, Shard::optimizer, Shard::full}) {
    next.dist.shard = stage;
    ++next.length.steps;
    const int64_t share = (stage == Shard::full ? values / 2 : values) + states / 2;
    const std::vector<int64_t> read = train_and_count(2, next);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_GE(read[rank], share - most_besides) << name(stage) << ", rank " << rank;
      EXPECT_LE(read[rank], share + most_besides) << name(stage) << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace lockstep
