// SPDX-License-Identifier: Apache-2.0
// Trains a model of its own on the rows of a CSV file, with everything that train_gpt has: keys, validation,
// metrics, snapshots and restarts.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <lockstep/lockstep.h>
#include <sstream>

using namespace lockstep;

/// The numbers of a CSV file without a header. The last column is the target.
struct Table {
  explicit Table(const std::string& file) : text(read_named_file(file, "FILE")) {
    std::istringstream lines(text);
    int64_t rows = 0;
    for (std::string line; std::getline(lines, line); ++rows) {
      std::istringstream cells(line);
      int64_t count = 0;
      for (std::string cell; std::getline(cells, cell, ','); ++count) {
        char* end = nullptr;
        const float value = std::strtof(cell.c_str(), &end);
        require(end != cell.c_str() && std::string(end).find_first_not_of(" \r") == std::string::npos &&
                    std::isfinite(value),
                file, ":", rows + 1, ": \"", cell, "\" is no number");
        values.push_back(value);
      }
      if (rows == 0) columns = count;
      require(count == columns && count > 1, file, ":", rows + 1, ": ", count, " cells, where ",
              std::max<int64_t>(columns, 2), " are needed");
    }
    require(rows >= 5, file, " has ", rows, " rows, and 5 are needed: the last fifth validates");
  }
  int64_t rows() const { return static_cast<int64_t>(values.size()) / columns; }

  std::string text;
  std::vector<float> values;
  int64_t columns = 0;
};

/// Rows [first, first + count) of a table, one sample each.
class Rows : public Dataset {
 public:
  Rows(std::shared_ptr<const Table> table, int64_t first, int64_t count)
      : table_(std::move(table)), first_(first), count_(count) {}

  int64_t size() const override { return count_; }
  SampleField input() const override { return {{table_->columns - 1}, DType::f32}; }
  SampleField target() const override { return {{1}, DType::f32}; }
  void fetch(int64_t index, void* input, void* target) const override {
    const float* row = table_->values.data() + (first_ + index) * table_->columns;
    std::copy_n(row, table_->columns - 1, static_cast<float*>(input));
    *static_cast<float*>(target) = row[table_->columns - 1];
  }

 private:
  std::shared_ptr<const Table> table_;
  int64_t first_, count_;
};

/// y = output(silu(value(x)) * sigmoid(gate(x)) * scale).
class GatedRegression : public Module {
 public:
  explicit GatedRegression(int64_t inputs)
      : value_(add_part<Linear>("value", inputs, 32)), gate_(add_part<Linear>("gate", inputs, 32)) {}

  /// Computes in the precision of train.precision. Input and result are f32.
  Tensor operator()(const Tensor& x) const {
    const Tensor in = convert(x, value_.weight().compute_dtype());
    return convert(output_(silu(value_(in)) * sigmoid(gate_(in)) * scale_), x.dtype());
  }

 private:
  Linear& value_;
  Linear& gate_;
  Linear& output_ = add_part<Linear>("output", 32, 1);
  Tensor scale_ = add_parameter("scale", {32}, constant_values(1.0));
};

/// What the engine asks for. The last fifth of the rows validates.
class CsvTask : public TrainingTask {
 public:
  CsvTask(const Job& job, const std::string& file)
      : job_(job), table_(std::make_shared<Table>(file)), model_(table_->columns - 1) {}

  std::vector<NamedTensor> parameters() const override { return model_.parameters(); }
  std::shared_ptr<const Dataset> training_data() const override {
    return std::make_shared<Rows>(table_, 0, training_rows());
  }
  std::shared_ptr<const Dataset> validation_data() const override {
    return std::make_shared<Rows>(table_, training_rows(), table_->rows() - training_rows());
  }
  Tensor loss(const Tensor& inputs, const Tensor& targets, const Context&) const override {
    return mean_squared_error(model_(inputs), targets);
  }
  std::unique_ptr<Optimizer> make_optimizer(ParameterSpace& space) const override {
    return make_adamw(space, job_.optimizer);
  }
  /// A run resumes only with the rows that it began with.
  TaskFacts facts() const override { return {.artifacts = {{"rows", hash_text(hash_of(table_->text))}}}; }

 private:
  int64_t training_rows() const { return table_->rows() * 4 / 5; }

  const Job& job_;
  std::shared_ptr<const Table> table_;
  GatedRegression model_;
};

int main(int argc, char** argv) {
  return run_training_program(
      argc, argv,
      {.about = "Trains a gated regression on the rows of FILE. The last column is the target.",
       .defaults = {{"train.epochs", "10"},
                    {"train.batch_size", "16"},
                    {"train.learning_rate", "1e-2"},
                    {"train.min_lr", "1e-3"},
                    {"train.eval_every", "20"},
                    {"log.dir", "runs/csv"}},
       .arguments = {"FILE"},
       .make_task = [](const TaskInput& input) {
         return std::make_unique<CsvTask>(input.job, input.arguments[0]);
       }});
}
