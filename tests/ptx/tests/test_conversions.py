# SPDX-License-Identifier: Apache-2.0
"""Tests comparisons, moves and conversions."""

from __future__ import annotations

import unittest

import numpy as np

from ptx.errors import PtxError
from ptx.tests.kernels import run

RANDOM = np.random.default_rng(5)
FLOATS = RANDOM.standard_normal(32).astype(np.float32)


def each(body: str, data: np.ndarray) -> np.ndarray:
    """Runs a body with the thread's 32 bits in %r10 and %f10, and returns the %r11 of all threads."""
    text = f"""
  ld.global.u32 %r10, [%rd2];
  ld.global.f32 %f10, [%rd2];
{body}
  st.global.u32 [%rd2], %r11;
"""
    return run(text, data.view(np.uint32))


class Conversions(unittest.TestCase):
    """cvt in all directions that the kernels need."""

    def test_bf16_rounds_to_nearest_even(self) -> None:
        data = np.resize(np.uint32([0x3F808000, 0x3F818000, 0x3F808001, 0x7FC12345, 0xFF7FFFFF]), 32)
        result = each("cvt.rn.bf16.f32 %rs1, %f10; cvt.u32.u16 %r11, %rs1;", data)
        np.testing.assert_array_equal(result[:5], [0x3F80, 0x3F82, 0x3F81, 0x7FFF, 0xFF80])

    def test_pairs_have_the_first_source_above(self) -> None:
        result = each("cvt.rn.f16x2.f32 %r11, %f10, 0f3F800000;", FLOATS)
        np.testing.assert_array_equal(result >> 16, FLOATS.astype(np.float16).view(np.uint16))
        np.testing.assert_array_equal(result & 0xFFFF, np.full(32, 0x3C00))

    def test_halves_widen_exactly(self) -> None:
        halves = FLOATS.astype(np.float16)
        data = halves.view(np.uint16).astype(np.uint32)
        result = each("cvt.u16.u32 %rs1, %r10; cvt.f32.f16 %f11, %rs1; mov.b32 %r11, %f11;", data)
        np.testing.assert_array_equal(result.view(np.float32), halves.astype(np.float32))

    def test_integers_saturate(self) -> None:
        data = np.resize(np.float32([2.5, 3.5, -2.5, 1e20, -1e20, np.nan]), 32)
        result = each("cvt.rni.s32.f32 %r11, %f10;", data).view(np.int32)
        np.testing.assert_array_equal(result[:6], [2, 4, -2, 2**31 - 1, -(2**31), 0])
        result = each("cvt.rzi.u32.f32 %r11, %f10;", data)
        np.testing.assert_array_equal(result[:6], [2, 3, 0, 2**32 - 1, 0, 0])

    def test_sat_limits_to_one(self) -> None:
        data = np.resize(np.float32([-1, 0.25, 7, np.nan]), 32)
        result = each("cvt.sat.f32.f32 %f11, %f10; mov.b32 %r11, %f11;", data).view(np.float32)
        np.testing.assert_array_equal(result[:4], [0, 0.25, 1, 0])

    def test_a_narrow_result_is_extended_by_its_sign(self) -> None:
        data = np.resize(np.uint32([0x80, 0x7F, 0xFFFF]), 32)
        np.testing.assert_array_equal(
            each("cvt.s32.s8 %r11, %r10;", data).view(np.int32)[:3], [-128, 127, -1]
        )

    def test_packing_and_unpacking(self) -> None:
        data = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
        result = each("mov.b32 {%rs1, %rs2}, %r10; mov.b32 %r11, {%rs2, %rs1};", data)
        np.testing.assert_array_equal(result, data << 16 | data >> 16)

    def test_unknown_forms_are_errors(self) -> None:
        with self.assertRaisesRegex(PtxError, "unknown instruction 'cvt.rz.bf16.f32"):
            each("cvt.rz.bf16.f32 %rs1, %f10; cvt.u32.u16 %r11, %rs1;", FLOATS)


class Comparisons(unittest.TestCase):
    """setp and selp."""

    def holds(self, comparison: str, values: np.ndarray) -> list[int]:
        """Returns where the comparison with 1.0 holds."""
        result = each(
            f"setp.{comparison}.f32 %p1, %f10, 0f3F800000; selp.b32 %r11, 1, 0, %p1;", np.resize(values, 32)
        )
        return result[: len(values)].tolist()

    def test_ordered_and_unordered(self) -> None:
        values = np.float32([0.5, 1.0, 2.0, np.nan])
        self.assertEqual(self.holds("lt", values), [1, 0, 0, 0])
        self.assertEqual(self.holds("ltu", values), [1, 0, 0, 1])
        self.assertEqual(self.holds("geu", values), [0, 1, 1, 1])
        self.assertEqual(self.holds("ne", values), [1, 0, 1, 0])
        self.assertEqual(self.holds("neu", values), [1, 0, 1, 1])
        self.assertEqual(self.holds("nan", values), [0, 0, 0, 1])

    def test_combination_with_a_predicate(self) -> None:
        body = """
  setp.lt.u32 %p1, %r0, 16;
  setp.ge.and.u32 %p2|%p3, %r0, 8, %p1;
  selp.b32 %r11, 1, 0, %p2;
  @%p3 add.s32 %r11, %r11, 2;
"""
        expected = [1 if 8 <= t < 16 else 2 if t < 8 else 0 for t in range(32)]
        self.assertEqual(each(body, np.zeros(32, np.uint32)).tolist(), expected)

    def test_signs_matter(self) -> None:
        data = np.resize(np.int32([-1, 1]), 32)
        signed = each("setp.lt.s32 %p1, %r10, 0; selp.b32 %r11, 1, 0, %p1;", data)
        unsigned = each("setp.lt.u32 %p1, %r10, 2; selp.b32 %r11, 1, 0, %p1;", data)
        self.assertEqual((signed[0], signed[1], unsigned[0], unsigned[1]), (1, 0, 0, 1))


if __name__ == "__main__":
    unittest.main()
