// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

namespace lockstep::architecture {

/// The rooms whose headers each room may include, besides its own.
inline const std::map<std::string, std::set<std::string>> rooms = {
    {"core", {}},
    {"json", {"core"}},
    {"unicode", {"core", "json"}},
    {"events", {"core", "json"}},
    {"program", {"core"}},
    {"comm", {"core", "program"}},
    {"config", {"core", "json"}},
    {"kernels", {"core"}},
    {"tensor", {"core", "json", "kernels"}},
    {"parameters", {"core", "config", "kernels", "tensor"}},
    {"nn", {"core", "kernels", "tensor", "parameters"}},
    {"models", {"core", "json", "config", "kernels", "tensor", "parameters", "nn"}},
    {"movement", {"core", "comm", "kernels", "tensor", "parameters"}},
    {"dist", {"core", "comm", "config", "kernels", "tensor", "parameters", "movement", "data"}},
    {"store", {"core", "json", "program"}},
    {"net", {"core"}},
    {"tokenizer", {"core", "json", "unicode"}},
    {"writing", {"core", "json", "comm", "kernels", "tensor", "nn", "data", "tokenizer"}},
    {"data", {"core", "json", "unicode", "program", "kernels", "tensor", "tokenizer"}},
    {"metrics", {"core", "json", "kernels"}},
    {"snapshot",
     {"core", "json", "comm", "config", "store", "metrics", "kernels", "tensor", "parameters", "nn", "dist"}},
    {"huggingface",
     {"core", "json", "comm", "config", "store", "kernels", "tensor", "parameters", "nn", "models",
      "snapshot", "language", "tokenizer"}},
    {"language", {"core", "comm", "config", "store", "data", "snapshot", "tokenizer"}},
    {"job",
     {"core", "program", "comm", "config", "kernels", "tensor", "parameters", "nn", "models", "dist", "data",
      "snapshot", "language"}},
    {"train", {"core",    "program",    "comm",     "huggingface", "config",   "store",  "kernels",
               "tensor",  "parameters", "nn",       "models",      "dist",     "data",   "job",
               "metrics", "events",     "snapshot", "tokenizer",   "language", "writing"}},
    {"replay",
     {"core", "json", "program", "comm", "config", "kernels", "tensor", "parameters", "nn", "dist", "data",
      "job", "metrics", "events", "store", "snapshot", "tokenizer", "train"}},
    {"report", {"core", "json", "events", "config", "kernels", "job", "metrics", "snapshot"}},
    {"plan",
     {"core", "comm", "config", "kernels", "tensor", "parameters", "nn", "models", "movement", "dist", "data",
      "job", "train"}},
    {"doctor", {"core", "comm", "config", "store", "net", "job", "train"}},
    {"hosting", {"core", "json", "net"}},
    {"elastic", {"core", "json", "events", "program", "comm", "net", "hosting"}},
    {"pmix", {"core", "program", "comm", "net", "hosting"}},
    {"keeper", {"core", "json", "events", "program", "comm", "net", "hosting", "elastic"}},
};

}  // namespace lockstep::architecture
