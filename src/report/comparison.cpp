// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/comparison.h"

#include <map>
#include <set>

#include "lockstep/core/text.h"
#include "lockstep/job/keys.h"
#include "lockstep/report/history.h"

namespace lockstep {
namespace {

/// The values of the runs by kind and name, in the order of a report.
class Facts {
 public:
  explicit Facts(size_t runs) : runs_(runs) {}

  void set(size_t run, FactKind kind, const std::string& name, const std::string& value) {
    std::vector<std::string>& values = all_[{kind, name}];
    values.resize(runs_);
    values[run] = value;
    has_kind_.insert({kind, run});
  }

  std::vector<Difference> differences() const {
    std::vector<Difference> found;
    for (const auto& [fact, values] : all_)
      if (differ(fact.first, values))
        found.push_back({.kind = fact.first, .name = fact.second, .values = values});
    return found;
  }

 private:
  /// Returns whether values differ among the runs of which facts of this kind are known.
  bool differ(FactKind kind, const std::vector<std::string>& values) const {
    std::set<std::string> different;
    for (size_t run = 0; run < runs_; ++run)
      if (has_kind_.contains({kind, run})) different.insert(values[run]);
    return different.size() > 1;
  }

  size_t runs_;
  std::map<std::pair<FactKind, std::string>, std::vector<std::string>> all_;
  std::set<std::pair<FactKind, size_t>> has_kind_;
};

void set_keys(Facts& facts, size_t index, const RunFiles& run) {
  const JobKeys& keys = job_keys();
  if (!run.settings.empty())
    for (const Key& key : keys.keys()) {
      const auto set = run.settings.find(key.name);
      const std::string& earlier = key.earlier_text.empty() ? key.initial : key.earlier_text;
      const FactKind kind = key.key_class == KeyClass::semantic ? FactKind::semantic : FactKind::other;
      if (key.name != "log.dir")
        facts.set(index, kind, key.name, set != run.settings.end() ? set->second : earlier);
    }
  for (const auto& [name, value] : run.settings)
    if (keys.known(name) == nullptr) facts.set(index, FactKind::other, name, value);
}

}  // namespace

std::vector<Difference> differences_between(const std::vector<RunFiles>& runs) {
  Facts facts(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    set_keys(facts, i, runs[i]);
    for (const auto& [name, hash] : runs[i].data) facts.set(i, FactKind::data, "hash of the " + name, hash);
    for (const auto& [name, value] : last_facts(runs[i].events, "start"))
      facts.set(i, FactKind::build, name, value);
  }
  return facts.differences();
}

}  // namespace lockstep
