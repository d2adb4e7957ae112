// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/config/key.h"
#include "lockstep/config/settings.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

/// A word that a key accepts, and its value. Several words may have one value, which the first one prints.
template <class T>
struct KeyWord {
  KeyWord(const std::string& word, const T& of_word) : text(word), value(of_word) {}
  /// A word "name=K": the value for a K, and the K of a value; 0 if the value is of another word.
  KeyWord(const std::string& word, std::function<T(int64_t)> of_number,
          std::function<int64_t(const T&)> number)
      : text(word), value_of(std::move(of_number)), number_of(std::move(number)) {}

  std::string text;
  T value = {};
  std::function<T(int64_t)> value_of;
  std::function<int64_t(const T&)> number_of;
};

template <class T>
using KeyWords = std::vector<KeyWord<T>>;

template <class T>
ValueFormat<T> word_format(const KeyWords<T>& words);

/// The keys of a struct of options, each bound to a field. A room declares the keys of its own options:
///
///     KeyRows<DistOptions> rows("dist", "Ranks");
///     rows.add("shard", &DistOptions::shard, {{"none", Shard::none}, {"full", Shard::full}},
///              KeyClass::collective, "...");
///
/// A field is a number, a truth value or a text. It may be a value with a word, such as an enum, or a variant
/// of that and a text.
template <class Options>
class KeyRows {
 public:
  /// Reads a text into a field of the options, and writes the field as text.
  struct Field {
    std::function<void(Options&, const std::string& text, const std::string& what)> read;
    std::function<std::string(const Options&)> write;
  };
  struct Row {
    Key key;
    Field field;
  };

  KeyRows(std::string section, std::string heading)
      : section_(std::move(section)), heading_(std::move(heading)) {}

  /// Sets the group of --help for the rows that follow.
  void begin(const std::string& heading) { heading_ = heading; }

  /// Adds a number.
  template <class Number>
  Key& add(const char* name, Number Options::*field, KeyClass key_class, const NumberRange& range,
           const char* unit, const char* meaning) {
    return add_as(name, field, number_format<Number>(range), key_class, unit, meaning);
  }
  /// Adds a text.
  Key& add(const char* name, std::string Options::*field, KeyClass key_class, const char* meaning) {
    return add_as(name, field, text_format(false), key_class, "", meaning);
  }
  /// Adds a truth value.
  Key& add(const char* name, bool Options::*field, KeyClass key_class, const char* meaning) {
    return add_as(name, field, truth_format(), key_class, "", meaning);
  }
  /// Adds a value that has a word.
  template <class T>
  Key& add(const char* name, T Options::*field, const std::type_identity_t<KeyWords<T>>& words,
           KeyClass key_class, const char* meaning) {
    return add_as(name, field, word_format<T>(words), key_class, "", meaning);
  }
  /// Adds a path or an address.
  Key& add_path(const char* name, std::string Options::*field, KeyClass key_class, const char* meaning) {
    return add_as(name, field, text_format(true), key_class, "", meaning);
  }
  /// Adds a value that has a word, or a path or an address instead.
  template <class T>
  Key& add_path(const char* name, std::variant<T, std::string> Options::*field,
                const std::type_identity_t<KeyWords<T>>& words, KeyClass key_class, const char* meaning);

  const std::vector<Row>& rows() const { return rows_; }
  /// Adds a row of another struct's rows.
  void add(const Row& row) { rows_.push_back(row); }

  /// Returns the options that these settings give. Throws UserError that begins with a setting's origin.
  Options of(const SettingLayer& settings) const {
    Options options;
    for (const Setting& setting : settings)
      row_of(setting.key).field.read(options, setting.value, setting.origin);
    return options;
  }
  /// Returns the value of a key.
  std::string value(const Options& options, const std::string& key) const {
    return row_of(key).field.write(options);
  }

  /// Returns the options that an INI text of any version of the program gives. Skips other keys and values
  /// that are not understood.
  Options in_ini(const std::string& text, const std::string& name) const {
    Options options;
    for (const Setting& setting : parse_ini(text, name))
      for (const Row& row : rows_)
        if (row.key.name == setting.key) try_to_read(row, options, setting);
    return options;
  }

 private:
  const Row& row_of(const std::string& key) const {
    const auto found = std::ranges::find(rows_, key, [](const Row& row) { return row.key.name; });
    expect(found != rows_.end(), "there is no key ", key);
    return *found;
  }

  static void try_to_read(const Row& row, Options& options, const Setting& setting) {
    try {
      row.field.read(options, setting.value, setting.origin);
    } catch (const UserError&) {
      return;
    }
  }

  template <class T>
  Key& add_as(const char* name, T Options::*field, const ValueFormat<T>& format, KeyClass key_class,
              const char* unit, const char* meaning) {
    Key key{.name = section_ + "." + name,
            .key_class = key_class,
            .heading = heading_,
            .unit = unit,
            .meaning = meaning,
            .type = format.type,
            .initial = format.write(Options().*field),
            .is_inherited = key_class == KeyClass::semantic};
    key.canonical = [format](const std::string& text, const std::string& what) {
      return format.write(format.read(text, what));
    };
    rows_.push_back({.key = std::move(key),
                     .field = {.read = [field, read = format.read](
                                           Options& options, const std::string& text,
                                           const std::string& what) { options.*field = read(text, what); },
                               .write = [field, write = format.write](
                                            const Options& options) { return write(options.*field); }}});
    return rows_.back().key;
  }

  std::string section_;
  std::string heading_;
  std::vector<Row> rows_;
};

template <class T>
ValueFormat<T> word_format(const KeyWords<T>& words) {
  std::vector<std::string> texts;
  for (const KeyWord<T>& word : words) texts.push_back(word.text);
  return {.type = joined(texts),
          .read =
              [words, texts](const std::string& text, const std::string& what) {
                const auto [index, number] = find_word(texts, text, what);
                return number > 0 ? words[index].value_of(number) : words[index].value;
              },
          .write =
              [words](const T& value) {
                for (const KeyWord<T>& word : words) {
                  const int64_t number = word.number_of ? word.number_of(value) : 0;
                  if (number > 0) return word.text.substr(0, word.text.size() - 1) + std::to_string(number);
                  if (!word.number_of && word.value == value) return word.text;
                }
                return std::string();
              }};
}

template <class Options>
template <class T>
Key& KeyRows<Options>::add_path(const char* name, std::variant<T, std::string> Options::*field,
                                const std::type_identity_t<KeyWords<T>>& words, KeyClass key_class,
                                const char* meaning) {
  using Value = std::variant<T, std::string>;
  const ValueFormat<std::string> path = text_format(true);
  const ValueFormat<T> word = word_format<T>(words);
  const ValueFormat<Value> either{
      .type = path.type,
      .read = [words, path](const std::string& text, const std::string& what) -> Value {
        for (const KeyWord<T>& one : words)
          if (one.text == text) return one.value;
        return path.read(text, what);
      },
      .write =
          [word](const Value& value) {
            if (const auto* text = std::get_if<std::string>(&value)) return *text;
            return word.write(std::get<T>(value));
          }};
  return add_as(name, field, either, key_class, "", meaning);
}

/// Returns the rows of a part of `Whole`. `part(whole)` is that part, for a whole that is const, too.
template <class Whole, class Options, class Part>
KeyRows<Whole> rows_within(const KeyRows<Options>& rows, Part part) {
  KeyRows<Whole> within("", "");
  for (const auto& row : rows.rows())
    within.add({.key = row.key,
                .field = {.read = [part, read = row.field.read](
                                      Whole& whole, const std::string& text,
                                      const std::string& what) { read(part(whole), text, what); },
                          .write = [part, write = row.field.write](
                                       const Whole& whole) { return write(part(whole)); }}});
  return within;
}

}  // namespace lockstep
