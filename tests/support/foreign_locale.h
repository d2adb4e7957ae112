// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <locale>
#include <string>

namespace lockstep {

/// A scope in which the program's locale writes 1234567.5 as "1.234.567,5". No locale of the system is
/// needed.
class ForeignLocale {
 public:
  ForeignLocale() : before_(std::locale::global(std::locale(std::locale::classic(), new Numbers))) {}
  ~ForeignLocale() { std::locale::global(before_); }
  ForeignLocale(const ForeignLocale&) = delete;
  ForeignLocale& operator=(const ForeignLocale&) = delete;

 private:
  struct Numbers : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };

  std::locale before_;
};

}  // namespace lockstep
