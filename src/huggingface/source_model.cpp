// SPDX-License-Identifier: Apache-2.0
#include "lockstep/huggingface/source_model.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/config/rows.h"
#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/language/keys.h"
#include "lockstep/models/keys.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/store/http.h"
#include "lockstep/store/object_store.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/tokenizer/load_tokenizer.h"

namespace lockstep {
namespace {

constexpr RetryPolicy folder_retries{.attempts = 3};

/// The objects below an http(s) address: "a/b.txt" is <address>/a/b.txt. A server that does not support
/// ranges sends the whole object, which is then kept in memory.
class HttpFolder : public ObjectReader {
 public:
  explicit HttpFolder(std::string address) : address_(std::move(address)) {
    while (address_.ends_with('/')) address_.pop_back();
  }

  std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) override {
    if (!whole_.contains(key)) {
      if (bytes <= 0) return exists(key) ? std::optional<std::string>("") : std::nullopt;
      HttpReply reply = ask(key, begin, bytes);
      if (reply.status == 404) return std::nullopt;
      if (reply.status == 416) return "";
      const bool is_whole = begin == 0 && bytes == all_bytes;
      if (is_whole || reply.status == 206) return std::move(reply.body);
      whole_[key] = std::move(reply.body);
    }
    const std::string& all = whole_[key];
    return begin >= std::ssize(all) ? "" : all.substr(static_cast<size_t>(begin), static_cast<size_t>(bytes));
  }

  bool exists(const std::string& key) override { return get(key, 0, 1).has_value(); }

  std::string name_of(const std::string& key) const override {
    return key.empty() ? address_ : concat(address_, "/", key);
  }

 private:
  /// Requests a part of an object, which may come whole. Throws UserError if the server refuses, and Error if
  /// it does not answer.
  HttpReply ask(const std::string& key, int64_t begin, int64_t bytes) {
    const HttpRequest request = {.url = name_of(key),
                                 .headers = range_header(begin, bytes),
                                 .may_redirect = true,
                                 .most_bytes = most_bytes_in_memory};
    try {
      return with_retries(folder_retries, [&] {
        HttpReply reply = client_.perform(request);
        if (reply.is_busy()) throw TransientError(concat("the server answered ", reply.status));
        require(reply.status < 400 || reply.status == 404 || reply.status == 416, "the server answered ",
                reply.status);
        if (reply.status == 206) cut_to_range(reply, begin, bytes);
        return reply;
      });
    } catch (const UserError& problem) {
      throw UserError(concat("cannot read ", name_of(key), ": ", problem.what()));
    } catch (const Error& problem) {
      throw Error(concat("cannot read ", name_of(key), ": ", problem.what()));
    }
  }

  std::string address_;
  HttpClient client_;
  std::map<std::string, std::string> whole_;  ///< objects that came whole instead of a range
};

constexpr int64_t piece_elements = int64_t{2} << 20;
constexpr int64_t rows_for_fast_matmuls = 64;

/// Replaces control characters. Names in untrusted files can contain any byte.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  return text;
}

/// Throws UserError if an address is a path that leads to no folder.
void require_folder(const std::string& address) {
  namespace fs = std::filesystem;
  const std::optional<std::string> path = local_path(address);
  if (!path) return;
  std::error_code problem;
  const fs::file_status found = fs::status(*path, problem);
  require(found.type() != fs::file_type::not_found, address,
          " does not exist, and nothing is downloaded from the Hugging Face Hub: train_gpt writes a model to "
          "runs/NAME, and git clone https://huggingface.co/openai-community/gpt2 gets one");
  require(found.type() != fs::file_type::none, "cannot read ", address, ": ", problem.message());
  require(fs::is_directory(found), address, " is a file; give the folder of a model");
}

/// Stores the elements that this rank holds. `values` are the elements `place` of the model.
void keep(const World& world, PlacedTensors& tensors, Range place, const std::string& values) {
  for (const Range& held : tensors.buffers()[0].held[static_cast<size_t>(world.rank())])
    if (const Range both = intersection(held, place); both.size() > 0)
      tensors.set(0, both,
                  reinterpret_cast<const std::byte*>(values.data()) +
                      (both.begin - place.begin) * int64_t{sizeof(float)});
}

/// Returns the elements `piece` of a tensor of the model. Rows that the file lacks are zeros.
std::string values_of(const ModelFolder& folder, const std::string& name, Range piece) {
  const auto place = folder.tensors().find(folder.description().family->stored_name(name));
  require(place != folder.tensors().end(), folder.name(), ": there is no tensor ", name);
  const int64_t there = std::clamp(place->second.shape.elements(), piece.begin, piece.end);
  std::string values;
  if (piece.begin < there) values = folder.read(place->second, piece.begin, there);
  values.resize(static_cast<size_t>(piece.size()) * sizeof(float), '\0');
  return values;
}

}  // namespace

SourceModel::SourceModel(const std::string& address, const World& world) : address_(address) {
  bool is_snapshot = false;
  on_first_rank(world, [&] {
    require_folder(address);
    const bool is_on_web = address.starts_with("http://") || address.starts_with("https://");
    const std::shared_ptr<ObjectReader> store = is_on_web
                                                    ? std::make_shared<HttpFolder>(address)
                                                    : std::shared_ptr<ObjectReader>(open_store(address));
    is_snapshot = !is_on_web && (store->exists(state_file) || !store->exists("config.json"));
    if (is_snapshot) {
      try {
        snapshot_ = find_snapshot(address);
      } catch (const UserError& problem) {
        if (store->exists(state_file)) throw;  // it is one, and damaged
        throw UserError(concat(
            address,
            " has neither a config.json, as a Hugging Face folder has, nor a snapshot: ", problem.what()));
      }
      return;
    }
    try {
      folder_ = std::make_unique<ModelFolder>(store);
      hash_ = folder_->hash();
    } catch (const UserError& problem) {
      throw UserError(one_line(problem.what()));
    }
    model_ = folder_->description();
  });
  if (world.communicator().broadcast_value(is_snapshot, 0)) {
    open_snapshot(world);
    return;
  }
  const std::string json = model_.family ? model_.family->config_json(model_, DType::f32) : "";
  model_ = read_model_config(world.communicator().broadcast_text(json, 0), address);
  model_.options.vocab_multiple = rows_for_fast_matmuls;
  hash_ = world.communicator().broadcast_text(hash_, 0);
}

SourceModel::SourceModel(const std::string& address, std::optional<StoredSnapshot> of_run, const World& world)
    : address_(address), snapshot_(std::move(of_run)), is_of_run_(true) {
  open_snapshot(world);
  const auto& artifacts = snapshot_->state().artifacts;
  expect(artifacts.contains(source_artifact), snapshot_->name(),
         " is from a run that did not begin with a model");
  hash_ = artifacts.at(source_artifact);
}

void SourceModel::open_snapshot(const World& world) {
  const std::string text = world.communicator().broadcast_text(snapshot_ ? snapshot_->text() : "", 0);
  if (!snapshot_) snapshot_.emplace(text, nullptr, address_);
  hash_ = hash_text(hash_of(text));
  const std::string& ini = snapshot_->state().configuration;
  const std::string name_of_ini = concat(snapshot_->name(), "/", state_file);
  ModelOptions options = model_rows().in_ini(ini, name_of_ini);
  model_ = {.family = &family_of(options)};
  int64_t rows = 0, padding = 0;
  on_first_rank(world, [&] {
    const std::string table = model_.family->head(model_).table;
    for (const std::string& file : snapshot_->files()) {
      if (!is_model_file(file)) continue;
      for (const StoredTensor& tensor : snapshot_->file(file).tensors)
        if (tensor.name == table && tensor.shape.rank() == 2)
          (file == padding_file ? padding : rows) += tensor.shape[0];
    }
    require(rows > 0, snapshot_->name(), " is not a snapshot of a ", model_.family->title(),
            ": it has no tensor ", table);
  });
  rows = world.communicator().broadcast_value(rows, 0);
  padding = world.communicator().broadcast_value(padding, 0);
  has_own_vocabulary_ = !options.from.empty();
  options.vocab_multiple = std::max<int64_t>(1, options.vocab_multiple);
  // Padding for matmuls has fewer rows than a multiple. A larger padding takes part in the softmax.
  const int64_t vocabulary = padding < options.vocab_multiple ? rows : rows + padding;
  if (options.vocab_size == 0) options.vocab_size = vocabulary;
  if (options.n_positions == 0) options.n_positions = text_rows().in_ini(ini, name_of_ini).block_size;
  model_.options = options;
}

std::map<std::string, std::string> SourceModel::texts() const {
  const bool is_readable = snapshot_ && snapshot_->is_readable_here();
  const std::vector<std::string> files = is_readable ? snapshot_->files() : std::vector<std::string>();
  std::map<std::string, std::string> found;
  for (const char* file : model_text_files) {
    if (file == std::string_view("config.json")) continue;  // the model writes its own
    if (const auto text = folder_ ? folder_->text(file) : std::nullopt) found[file] = *text;
    if (std::ranges::count(files, file) > 0) found[file] = snapshot_->read_text(file);
  }
  return found;
}

std::map<std::string, std::string> SourceModel::artifacts() const {
  return snapshot_ ? snapshot_->state().artifacts : std::map<std::string, std::string>();
}

void SourceModel::load(const World& world, PlacedTensors& tensors) const {
  if (is_of_run_) {  // the run begins again because its snapshots are gone
    const SourceModel now(address_, world);
    require(now.hash() == hash_, "model.from: ", address_,
            " has changed since the run began with it, and there is no snapshot to resume from; use --fresh "
            "to start a new run");
    return now.load(world, tensors);
  }
  if (snapshot_) return restore(*snapshot_, world, tensors, false);
  expect(tensors.buffers().front().dtype == DType::f32, "values are kept in ",
         tensors.buffers().front().dtype);
  std::string problem;
  for (const PlacedTensors::Entry& one : tensors.tensors())
    for (int64_t begin = 0; begin < one.place.size() && problem.empty(); begin += piece_elements) {
      const Range piece{begin, std::min(one.place.size(), begin + piece_elements)};
      std::string values;
      try {
        if (world.is_first()) values = values_of(*folder_, one.name, piece);
      } catch (const UserError& failure) {
        problem = failure.what();
      }
      values = world.communicator().broadcast_text(std::move(values), 0);  // empty if rank 0 has failed
      if (values.empty() && problem.empty()) problem = "rank 0 has failed";
      if (!values.empty())
        keep(world, tensors, {one.place.begin + piece.begin, one.place.begin + piece.end}, values);
    }
  on_first_rank(world, [&] { require(problem.empty(), problem); });
}

std::unique_ptr<LanguageModel> load_model(const SourceModel& source, const World& world, DType precision) {
  const ModelDescription& described = source.description();
  auto model = described.family->make(described.options, {}, 0);
  ParameterSpace space(model->parameters());
  space.set_precision(precision);
  SpaceTensors tensors(space, nullptr, world.size());
  source.load(world, tensors);
  space.copies.refresh();
  return model;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const SourceModel& source) {
  // Every snapshot of a model over characters has its vocabulary as an artifact.
  const std::map<std::string, std::string> artifacts = source.artifacts(), texts = source.texts();
  if (const auto characters = artifacts.find("vocabulary"); characters != artifacts.end())
    return std::make_shared<CharTokenizer>(characters->second);
  if (const auto json = texts.find("tokenizer.json"); json != texts.end()) {
    const auto text_of = [&](const char* file) {
      const auto found = texts.find(file);
      return found == texts.end() ? std::string() : found->second;
    };
    return tokenizer_from_json(
        json->second, concat(source.address(), "/", json->first), text_of("tokenizer_config.json"),
        concat(source.address(), "/tokenizer_config.json"), text_of("chat_template.jinja"));
  }
  // vocab.json and merges.txt also make a tokenizer. load_tokenizer() needs them in a local folder.
  const std::optional<std::string> folder = local_path(source.address());
  return folder && texts.contains("vocab.json") ? load_tokenizer(*folder) : nullptr;
}

}  // namespace lockstep
