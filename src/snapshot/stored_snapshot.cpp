// SPDX-License-Identifier: Apache-2.0
#include "lockstep/snapshot/stored_snapshot.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/json/json_field.h"
#include "lockstep/tensor/safetensors.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Field = JsonField<Json>;

constexpr size_t most_state_bytes = size_t{256} << 20;
// Limits of numbers in a state. Sums and products of them do not overflow.
constexpr int64_t most_bytes = int64_t{1} << 60;
constexpr int64_t most_elements = int64_t{1} << 56;
constexpr int64_t piece_bytes = int64_t{8} << 20;
constexpr int64_t largest_element = 8;  ///< in bytes

/// Returns the state as text, with its checksum in front. unseal() accepts exactly this text.
std::string seal(const Json& state) {
  return Json{{"checksum", hash_text(hash_of(state.dump()))}, {"state", state}}.dump(2) + "\n";
}

/// Returns the state in a text of seal(). Throws UserError if the checksum does not match.
Field unseal(const std::string& bytes) {
  const Field state = Field(bytes, "its text", most_state_bytes)["state"];
  require(seal(state.json()) == bytes, "its checksum does not match");
  return state;
}

bool has_tensors(const std::string& file) { return file.ends_with(".safetensors"); }

std::optional<double> loss_of(const Field& loss) {
  return loss.is_null() ? std::nullopt : std::optional(loss.number());
}

std::optional<GradScale> grad_scale_of(const Field& scaler) {
  if (scaler.is_null()) return std::nullopt;
  return GradScale{.scale = static_cast<float>(scaler["scale"].number()),
                   .growth_tracker = scaler["growth_tracker"].whole<int32_t>(0),
                   .skipped_steps = scaler["skipped_steps"].whole<int32_t>(0)};
}

Json json_of(const ValidationRecord& validations) {
  Json json = {
      {"best_loss", nullptr}, {"best_step", validations.best_step}, {"since_best", validations.since_best}};
  if (validations.best_loss) json["best_loss"] = *validations.best_loss;
  return json;
}

ValidationRecord validations_of(const Field& json) {
  return {.best_loss = loss_of(json["best_loss"]),
          .best_step = json["best_step"].whole<int64_t>(0),
          .since_best = json["since_best"].whole<int64_t>(0)};
}

std::map<std::string, std::string> artifacts_of(const Field& json) {
  std::map<std::string, std::string> artifacts;
  for (const auto& [name, text] : json.members()) artifacts[name] = text.text();
  return artifacts;
}

Json json_of(const RunChain& chain) {
  Json json = {{"link", chain.link}, {"origins", Json::array()}};
  for (const auto& [step, build, scope] : chain.origins)
    json["origins"].push_back({{"step", step}, {"build", build}, {"scope", scope}});
  return json;
}

RunChain chain_of(const Field& json) {
  if (json.is_null()) return {};
  RunChain chain{.link = json["link"].text()};
  for (const Field& origin : json["origins"].elements())
    chain.origins.push_back(
        {origin["step"].whole<int64_t>(0), origin["build"].text(), origin["scope"].text()});
  return chain;
}

/// Returns the fields of a snapshot, without its files.
Json json_of(const Snapshot& snapshot) {
  Json state = {{"format", snapshot_format},
                {"step", snapshot.step},
                {"optimizer_steps", snapshot.optimizer_steps},
                {"finished", snapshot.is_finished},
                {"validation_pending", snapshot.is_validation_pending},
                {"best_validation_loss", nullptr},
                {"validations", json_of(snapshot.validations)},
                {"configuration", snapshot.configuration},
                {"artifacts", snapshot.artifacts},
                {"matmul_plans", snapshot.matmul_plans},
                {"scope", snapshot.scope},
                {"chain", json_of(snapshot.chain)}};
  if (snapshot.best_validation_loss) state["best_validation_loss"] = *snapshot.best_validation_loss;
  if (const auto& scaler = snapshot.grad_scale)
    state["grad_scaler"] = {{"scale", scaler->scale},
                            {"growth_tracker", scaler->growth_tracker},
                            {"skipped_steps", scaler->skipped_steps}};
  return state;
}

}  // namespace

std::string state_text(const Snapshot& snapshot, const std::vector<SnapshotFile>& files,
                       const std::vector<TensorSums>& sums) {
  Json state = json_of(snapshot);
  for (size_t f = 0; f < files.size(); ++f) {
    Json tensors = Json::array();
    for (size_t t = 0; t < files[f].tensors.size(); ++t) {
      const StoredTensor& tensor = files[f].tensors[t];
      const std::optional<uint64_t> sum = sums[f].of(t);
      expect(sum.has_value(), "no rank has written all of ", tensor.name);
      tensors.push_back(
          {{"name", tensor.name}, {"place", tensor.place.begin}, {"checksum", hash_text(*sum)}});
    }
    state["files"][files[f].key] = {
        {"bytes", files[f].bytes}, {"header", hash_text(hash_of(files[f].header))}, {"tensors", tensors}};
  }
  return seal(state);
}

std::string amended_state_text(const std::string& text, const Snapshot& snapshot) {
  Json state = json_of(snapshot);
  state["files"] = unseal(text)["files"].json();
  return seal(state);
}

StoredSnapshot::StoredSnapshot(std::shared_ptr<ObjectReader> store, std::string group)
    : store_(std::move(store)), group_(std::move(group)), name_(store_->name_of(group_)) {
  std::optional<std::string> text = store_->get(key(state_file), 0, most_state_bytes + 1);
  require(text.has_value(), name_, "/", state_file, " is missing");
  text_ = *std::move(text);
  parse();
  for (const std::string& file : files())
    if (has_tensors(file))
      opened_.emplace(file, open(file));
    else
      read_text(file);
}

StoredSnapshot::StoredSnapshot(const std::string& text, std::shared_ptr<ObjectReader> store,
                               std::string group)
    : store_(std::move(store)),
      group_(std::move(group)),
      name_(store_ ? store_->name_of(group_) : group_),
      text_(text) {
  parse();
}

void StoredSnapshot::parse() {
  try {
    const Field state = unseal(text_);
    format_ = state.has("format") ? state["format"].whole() : 1;  // format 1 did not record it
    if (format_ != snapshot_format) return;                       // the other fields may have another meaning
    const auto flag = [&](const char* key) {
      state[key].require_is(!state[key].is_null(), "true or false");
      return state[key].flag();
    };
    state_ = {.step = state["step"].whole<int64_t>(0),
              .optimizer_steps = state["optimizer_steps"].whole<int64_t>(0),
              .is_finished = flag("finished"),
              .is_validation_pending = flag("validation_pending"),
              .best_validation_loss = loss_of(state["best_validation_loss"]),
              .validations = validations_of(state["validations"]),
              .grad_scale = grad_scale_of(state["grad_scaler"]),
              .configuration = state["configuration"].text(),
              .artifacts = artifacts_of(state["artifacts"]),
              .matmul_plans = state["matmul_plans"].text(),
              .scope = state.has("scope") ? state["scope"].text() : "",
              .chain = chain_of(state["chain"])};
    for (const auto& [file, fields] : state["files"].members()) {
      fields.require_is(file.find('/') == std::string::npos, "a file of the snapshot's own folder");
      FileChecksums& checksums = checksums_[file];
      checksums = {.bytes = fields["bytes"].whole<int64_t>(0, most_bytes),
                   .header = fields["header"].text(),
                   .tensors = {}};
      for (const Field& tensor : fields["tensors"].elements())
        checksums.tensors[tensor["name"].text()] = {tensor["place"].whole<int64_t>(0, most_elements),
                                                    tensor["checksum"].text()};
    }
  } catch (const UserError& problem) {
    throw UserError(concat(name_, "/", state_file, " is damaged: ", problem.what()));
  }
}

/// Returns the key of a file. A snapshot at the root of the store has no group.
std::string StoredSnapshot::key(const std::string& file) const {
  return group_.empty() ? file : concat(group_, "/", file);
}

std::string StoredSnapshot::name_of(const std::string& file) const {
  return store_ ? store_->name_of(key(file)) : concat(name_, "/", file);
}

const StoredSnapshot::FileChecksums& StoredSnapshot::checksums_of(const std::string& file) const {
  const auto found = checksums_.find(file);
  require(found != checksums_.end(), name_, "/", state_file, " has no entry for ", file);
  return found->second;
}

uint64_t StoredSnapshot::tensors_hash() const {
  std::string lines;
  for (const auto& [file, sums] : checksums_)
    for (const auto& [name, tensor] : sums.tensors) lines += concat(name, " ", tensor.checksum, "\n");
  return hash_of(lines);
}

std::vector<std::string> StoredSnapshot::files() const {
  std::vector<std::string> names;
  for (const auto& [file, sums] : checksums_) names.push_back(file);
  return names;
}

/// Reads the header of a file and checks the file's size.
SnapshotFile StoredSnapshot::open(const std::string& file) const {
  const int64_t bytes = checksums_of(file).bytes;
  // get() returns fewer bytes if the file ends before.
  const std::optional<std::string> end = store_->get(key(file), std::max<int64_t>(bytes - 1, 0), 2);
  require(end.has_value(), name_of(file), " is missing");
  require(std::ssize(*end) == 1, name_of(file), " is damaged: its size is not ", bytes, " bytes");
  const auto read_at = [&](int64_t begin, int64_t count) {
    return store_->get(key(file), begin, count).value_or("");
  };
  return file_of(file, SafeTensorsHeader::read(name_of(file) + " is damaged", read_at));
}

SnapshotFile StoredSnapshot::file_of(const std::string& file, const std::string& header) const {
  SnapshotFile found{.key = file, .header = header, .tensors = {}, .bytes = std::ssize(header)};
  const FileChecksums& checksums = checksums_of(file);
  require(hash_text(hash_of(header)) == checksums.header, name_of(file),
          " is damaged: the checksum of its header does not match");
  try {
    const auto parsed =
        SafeTensorsHeader::parse(std::string_view(header).substr(SafeTensorsHeader::length_bytes));
    require(header.size() % 8 == 0, "its header has ", header.size(), " bytes");
    for (const SafeTensorsEntry& entry : parsed.entries) {
      const auto known = checksums.tensors.find(entry.name);
      require(known != checksums.tensors.end(), state_file, " has no tensor ", entry.name);
      require(found.bytes % lockstep::bytes(entry.dtype) == 0, "tensor ", entry.name,
              " does not begin at a multiple of its elements' size");
      const int64_t place = known->second.place;
      found.tensors.push_back({.name = entry.name,
                               .dtype = entry.dtype,
                               .shape = entry.shape,
                               .place = {place, place + entry.shape.elements()},
                               .begin = found.bytes});
      found.bytes += entry.bytes();
    }
    require(found.bytes == checksums.bytes, "its tensors have a different size");
  } catch (const std::exception& problem) {
    throw UserError(concat(name_of(file), " is damaged: ", problem.what()));
  }
  return found;
}

void StoredSnapshot::read(const std::string& file, Range bytes, const Take& take) const {
  // Elements are aligned in the file, so no piece ends within one.
  for (int64_t begin = bytes.begin, end = 0; begin < bytes.end; begin = end) {
    end = std::min((begin + piece_bytes) / largest_element * largest_element, bytes.end);
    const int64_t count = end - begin;
    const std::optional<std::string> piece = store_->get(key(file), begin, count);
    require(piece.has_value(), name_of(file), " is missing");
    require(std::ssize(*piece) == count, name_of(file), " is damaged: it is cut off");
    take(begin, std::as_bytes(std::span(*piece)));
  }
}

std::string StoredSnapshot::read_text(const std::string& file) const {
  std::optional<std::string> text = store_->get(key(file), 0, checksums_of(file).bytes + 1);
  require(text.has_value(), name_of(file), " is missing");
  require(hash_text(hash_of(*text)) == checksums_of(file).header, name_of(file),
          " is damaged: its checksum does not match");
  return *std::move(text);
}

void StoredSnapshot::read(const SnapshotFile& file, const Take& take) const {
  TensorSums sums(file.tensors);
  read(file.key, {std::ssize(file.header), file.bytes}, [&](int64_t begin, std::span<const std::byte> piece) {
    sums.take(begin, piece);
    take(begin, piece);
  });
  compare(file, sums, std::vector<bool>(file.tensors.size(), true));
}

void StoredSnapshot::compare(const SnapshotFile& file, const TensorSums& sums,
                             const std::vector<bool>& wanted) const {
  const FileChecksums& checksums = checksums_of(file.key);
  for (size_t t = 0; t < file.tensors.size(); ++t) {
    const std::string& name = file.tensors[t].name;
    const std::optional<uint64_t> sum = sums.of(t);
    const bool is_expected = sum ? hash_text(*sum) == checksums.tensors.at(name).checksum : !wanted.at(t);
    require(is_expected, name_of(file.key), " is damaged: the checksum of ", name, " does not match");
  }
}

void StoredSnapshot::require_readable() const {
  require(format_ <= snapshot_format, name_, " was written by a newer version of this program (format ",
          format_, "; this one reads format ", snapshot_format, "): use that version, or another snapshot");
  require(format_ == snapshot_format, name_, " has format ", format_, ", but this version reads only format ",
          snapshot_format, ": commit ", last_commit_with_older_formats,
          " of this repository reads it, and writes format ", snapshot_format, " when it resumes the run");
}

void StoredSnapshot::verify() const {
  for (const auto& [key, file] : opened_) read(file, [](int64_t, std::span<const std::byte>) {});
}

}  // namespace lockstep
