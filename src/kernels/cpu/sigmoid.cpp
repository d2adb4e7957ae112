// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/sigmoid.h"

#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/math.h"

namespace lockstep {

void run(CpuStream stream, const SigmoidForward& k) {
  map_views(
      stream, k.y, [](auto x) { return math::logistic(x).value; }, k.x);
}

void run(CpuStream stream, const SigmoidBackward& k) {
  map_views(
      stream, k.dx, [](auto y, auto dy) { return dy * y * (1 - y); }, k.y, k.dy);
}

void run(CpuStream stream, const SiluForward& k) {
  map_views(
      stream, k.y, [](auto x) { return x * math::logistic(x).value; }, k.x);
}

void run(CpuStream stream, const SiluBackward& k) {
  map_views(
      stream, k.dx,
      [](auto x, auto dy) {
        const auto s = math::logistic(x);
        return dy * std::fma(x, s.value * s.complement, s.value);
      },
      k.x, k.dy);
}

}  // namespace lockstep
