// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/power.h"

#include "lockstep/kernels/cpu/broadcast.h"
#include "lockstep/kernels/math.h"

namespace lockstep {

void run(CpuStream stream, const Power& k) {
  with_float_type(k.y.dtype, [&]<class T>() {
    map_operands<T>(
        stream, k.y, [](auto a, auto b) { return math::pow(a, b); }, k.a, k.b);
  });
}

}  // namespace lockstep
