// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/print.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

constexpr int64_t most_elements = 1000;  ///< that are printed in full
constexpr int64_t edge = 3;              ///< elements at each end of a dimension otherwise
constexpr int64_t line_width = 80;

/// A way to print numbers.
struct Style {
  std::chars_format format = std::chars_format::fixed;
  int digits = 4;
};

/// Returns the style of PyTorch for these numbers: whole ones without digits, and ones of very different or
/// extreme sizes with an exponent.
Style style_of(const std::vector<double>& values) {
  constexpr double largest_fixed = 1e8, smallest_fixed = 1e-4, largest_ratio = 1e3;
  bool are_whole = true;
  double largest = 0.0, smallest = INFINITY;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    are_whole = are_whole && value == std::trunc(value);
    if (value == 0.0) continue;
    largest = std::max(largest, std::fabs(value));
    smallest = std::min(smallest, std::fabs(value));
  }
  const bool needs_exponent =
      largest >= largest_fixed ||
      (!are_whole && largest > 0.0 && (smallest < smallest_fixed || largest > largest_ratio * smallest));
  if (needs_exponent) return {std::chars_format::scientific, 4};
  return {std::chars_format::fixed, are_whole ? 0 : 4};
}

std::string text_of(double value, const Style& style) {
  if (std::isnan(value)) return "nan";  // without the sign that a processor gives it
  std::array<char, 64> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, style.format, style.digits).ptr;
  return {text.data(), end};
}

/// Prints the values of a tensor, dimension by dimension.
class Printer {
 public:
  Printer(const Tensor& tensor, std::ostream& out)
      : shape_(tensor.shape()), out_(out), is_cut_(shape_.elements() > most_elements) {
    const std::vector<double> values = to_doubles(tensor);
    std::vector<double> shown;
    for_shown(0, 0, [&](int64_t index) { shown.push_back(values[static_cast<size_t>(index)]); });
    // The dtype of integers needs no digit and no exponent.
    const Style style = tensor.dtype() == DType::i32 ? Style{std::chars_format::fixed, 0} : style_of(shown);
    for (const double value : shown) {
      texts_.push_back(text_of(value, style));
      width_ = std::max(width_, static_cast<int64_t>(texts_.back().size()));
    }
  }

  void print() { print_dimension(0); }

 private:
  /// Returns the places of a dimension that are printed. -1 stands for those that are left out.
  std::vector<int64_t> places(int dimension) const {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < shape_[dimension]; ++i) {
      const bool is_shown = !is_cut_ || i < edge || i >= shape_[dimension] - edge;
      if (is_shown || places.back() != -1) places.push_back(is_shown ? i : -1);
    }
    return places;
  }

  template <class Body>
  void for_shown(int dimension, int64_t first, const Body& body) const {
    if (dimension == shape_.rank()) return body(first);
    for (const int64_t place : places(dimension))
      if (place >= 0) for_shown(dimension + 1, first * shape_[dimension] + place, body);
  }

  void print_dimension(int dimension) {
    if (dimension == shape_.rank()) return print_next();
    const bool is_last = dimension + 1 == shape_.rank();
    const int64_t in_a_line = std::max<int64_t>(1, (line_width - dimension - 1) / (width_ + 2));
    int64_t printed = 0;
    out_ << "[";
    for (const int64_t place : places(dimension)) {
      const bool breaks = is_last ? printed % in_a_line == 0 : true;
      if (printed > 0) out_ << (breaks ? ",\n" + std::string(static_cast<size_t>(dimension) + 1, ' ') : ", ");
      if (place < 0)
        out_ << "...";
      else
        print_dimension(dimension + 1);
      ++printed;
    }
    out_ << "]";
  }

  void print_next() {
    const std::string& text = texts_[next_++];
    const auto missing = static_cast<size_t>(width_) - text.size();
    out_ << std::string(shape_.rank() == 0 ? 0 : missing, ' ') << text;
  }

  Shape shape_;
  std::ostream& out_;
  bool is_cut_;
  std::vector<std::string> texts_;  ///< of the elements that are printed, in order
  int64_t width_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor) return out << "an empty tensor";
  if (mode_of(tensor.stream()).is_dry)
    out << "not computed in a dry run:";
  else
    Printer(tensor, out).print();
  return out << " " << tensor.dtype() << " " << tensor.shape();
}

std::string coordinates(int64_t index, const Shape& shape) {
  std::string text;
  for (int64_t i = shape.rank() - 1; i >= 0; --i) {
    text = concat(index % shape[i], text.empty() ? "" : ", ", text);
    index /= shape[i];
  }
  return concat("[", text, "]");
}

}  // namespace lockstep
