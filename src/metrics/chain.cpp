// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/chain.h"

#include <bit>
#include <cmath>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"

namespace lockstep {

RunChain RunChain::begin(const std::string& settings, const std::string& data) {
  RunChain chain;
  chain.add_line("settings\n" + settings);
  chain.add_line("data\n" + data);
  return chain;
}

void RunChain::add_line(const std::string& line) { link = hash_text(hash_of(concat(link, "\n", line))); }

void RunChain::enter(const RunOrigin& origin) {
  if (link.empty()) return;
  if (!origins.empty() && origins.back().build == origin.build && origins.back().scope == origin.scope)
    return;
  origins.push_back(origin);
  add_line(concat("origin ", origin.step, "\n", origin.build, "\n", origin.scope));
}

void RunChain::add(int64_t step, const std::string& loss_bits) {
  if (!link.empty()) add_line(concat("step ", step, " loss ", loss_bits));
}

std::string RunChain::bits_text(float loss) {
  const float named = std::isnan(loss) ? std::numeric_limits<float>::quiet_NaN() : loss;
  return hexadecimal(std::bit_cast<uint32_t>(named), 8);
}

}  // namespace lockstep
