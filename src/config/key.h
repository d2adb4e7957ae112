// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The scope in which a key must have one value.
enum class KeyClass {
  semantic,    ///< fixes the bits of a run: without the value of its snapshot a resume is refused
  collective,  ///< may change at every start, but all ranks of a start must agree
  local,       ///< may differ between ranks
};

/// The interval of numbers that a key accepts.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   ///< `low` itself is refused
  bool high_open = false;  ///< `high` itself is refused
};

constexpr NumberRange at_least(double low) { return {.low = low}; }
constexpr NumberRange above(double low) { return {.low = low, .low_open = true}; }
constexpr NumberRange between(double low, double high) { return {.low = low, .high = high}; }
constexpr NumberRange unit_interval{.low = 0, .high = 1, .high_open = true};

/// A key of the configuration, without the field that holds its value. Parsing, --help, config.ini and
/// fingerprints read these facts. Rooms make keys with KeyRows.
struct Key {
  std::string name;  ///< with its section: train.steps
  KeyClass key_class = KeyClass::semantic;
  std::string heading = {};  ///< the group of --help that shows it
  std::string unit = {};
  std::string meaning = {};
  std::string type = {};     ///< "integer", "number", "true or false", "text" or the words that it accepts
  std::string initial = {};  ///< its value, as text, unless a program or a user sets it
  std::vector<std::string> elsewhere = {};  ///< what PyTorch, nanoGPT and Hugging Face's Trainer call it
  bool is_first = false;                    ///< a first run needs it: --help marks it
  bool is_inherited = false;      ///< a resumed run gives its value to a start that leaves the key open
  std::string open_text = {};     ///< a value that leaves the key open, as if it were not set; empty: none
  std::string earlier_text = {};  ///< the value of runs that began without the key; empty: `initial`
  std::string alternatives = {};  ///< of the keys with this name one source can set one
  /// Returns a value as it is stored and printed. Throws UserError that begins with `what`.
  std::function<std::string(const std::string& text, const std::string& what)> canonical = {};

  Key& also_called(std::vector<std::string> names) {
    elsewhere = std::move(names);
    return *this;
  }
  Key& first() {
    is_first = true;
    return *this;
  }
  Key& inherited(bool inherits = true) {
    is_inherited = inherits;
    return *this;
  }
  Key& open_at(const std::string& text) {
    open_text = text;
    return *this;
  }
  Key& in_earlier_runs(const std::string& text) {
    earlier_text = text;
    return *this;
  }
  Key& alternative(const std::string& group) {
    alternatives = group;
    return *this;
  }
};

/// Conversions of the values of one type from and to text. Messages of read() begin with `what`.
template <class T>
struct ValueFormat {
  std::string type;  ///< as Key::type
  std::function<T(const std::string& text, const std::string& what)> read;
  std::function<std::string(const T& value)> write;
};

/// Returns the format of numbers (int, int64_t or double) in a range. A double has the shortest text that
/// reads back the same.
template <class Number>
ValueFormat<Number> number_format(const NumberRange& range);
ValueFormat<bool> truth_format();
/// Returns the format of any text. In a path a leading ~/ means HOME.
ValueFormat<std::string> text_format(bool is_path);

/// Throws UserError that begins with `what` if a text has a double quote, an invisible character or bytes
/// that are not UTF-8.
void require_printable(const std::string& text, const std::string& what);

/// Returns the index of the word that `text` is, and the number in it. K in a word "name=K" stands for any
/// integer from 1; the number of other words is 0. Throws UserError that lists the words.
std::pair<size_t, int64_t> find_word(const std::vector<std::string>& words, const std::string& text,
                                     const std::string& what);

/// The keys of a program, in the order of --help.
class KeyTable {
 public:
  const std::vector<Key>& keys() const { return keys_; }
  /// Returns the key `name`; nullptr if there is none.
  const Key* known(const std::string& name) const;
  /// Returns the key `name`. Throws UserError that names `origin` and suggests a key if there is none.
  const Key& find(const std::string& name, const std::string& origin) const;

  /// Returns " (did you mean ...?)" for a misspelled key, or for a name that another program gives a setting.
  /// Returns a hint to read --help for any other name.
  std::string suggestion(const std::string& name) const;
  /// Makes suggestion() answer these names with `advice`.
  void suggest(const std::string& advice, std::vector<std::string> names);

 protected:
  std::vector<Key> keys_;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> advice_;
};

}  // namespace lockstep
