# SPDX-License-Identifier: Apache-2.0
"""Tests integer and floating-point instructions against Python's exact numbers."""

from __future__ import annotations

import unittest
from fractions import Fraction

import numpy as np

from ptx.exact import fma_f32, fma_f32_directed, fma_f64
from ptx.tests.kernels import run, run_binary

RANDOM = np.random.default_rng(1)
A = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
B = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
WIDE_A = RANDOM.integers(0, 1 << 63, 32, dtype=np.uint64)
WIDE_B = RANDOM.integers(0, 1 << 63, 32, dtype=np.uint64)
FLOATS = RANDOM.standard_normal(32).astype(np.float32)


def unary(instruction: str, data: np.ndarray, kind: str = "b32", register: str = "r") -> np.ndarray:
    """Runs an instruction with one source on 32 numbers."""
    body = f"""
  ld.global.{kind} %{register}10, [%rd2];
  {instruction} %{register}11, %{register}10;
  st.global.{kind} [%rd2], %{register}11;
"""
    return run(body, data, stride=data.itemsize)


class Integers(unittest.TestCase):
    """add, sub, mul, mad, div, rem, shifts, logic and bit fields."""

    def test_sums_and_products_wrap_around(self) -> None:
        for name, function in (("add", int.__add__), ("sub", int.__sub__), ("mul.lo", int.__mul__)):
            expected = [function(int(a), int(b)) % (1 << 32) for a, b in zip(A, B)]
            np.testing.assert_array_equal(run_binary(f"{name}.s32", "b32", A, B), expected)
            expected = [function(int(a), int(b)) % (1 << 64) for a, b in zip(WIDE_A, WIDE_B)]
            np.testing.assert_array_equal(
                run_binary(f"{name}.s64", "b64", WIDE_A, WIDE_B), np.array(expected, np.uint64)
            )

    def test_mul_hi_is_the_upper_half(self) -> None:
        expected = [int(a) * int(b) >> 32 for a, b in zip(A, B)]
        np.testing.assert_array_equal(run_binary("mul.hi.u32", "b32", A, B), expected)
        signed = [int(a) * int(b) >> 32 for a, b in zip(A.view(np.int32), B.view(np.int32))]
        np.testing.assert_array_equal(run_binary("mul.hi.s32", "b32", A, B).view(np.int32), signed)

    def test_signed_division_rounds_toward_zero(self) -> None:
        divisors = (B % 1000 + 1).astype(np.int32) * np.where(B & 1, -1, 1).astype(np.int32)
        values = A.view(np.int32)
        quotients = [
            abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(values, divisors)
        ]
        result = run_binary("div.s32", "b32", A, divisors.view(np.uint32)).view(np.int32)
        np.testing.assert_array_equal(result, quotients)
        rest = [int(a) - q * int(b) for a, b, q in zip(values, divisors, quotients)]
        np.testing.assert_array_equal(
            run_binary("rem.s32", "b32", A, divisors.view(np.uint32)).view(np.int32), rest
        )

    def test_shifts_beyond_the_width(self) -> None:
        amounts = np.arange(32, dtype=np.uint32) * 2
        shifted = [int(a) << int(n) & 0xFFFFFFFF for a, n in zip(A, amounts)]
        np.testing.assert_array_equal(run_binary("shl.b32", "b32", A, amounts), shifted)
        signed = [int(a) >> int(n) for a, n in zip(A.view(np.int32), amounts)]
        np.testing.assert_array_equal(run_binary("shr.s32", "b32", A, amounts).view(np.int32), signed)

    def test_logic(self) -> None:
        np.testing.assert_array_equal(run_binary("xor.b32", "b32", A, B), A ^ B)
        np.testing.assert_array_equal(unary("not.b32", A), ~A)
        np.testing.assert_array_equal(unary("popc.b32", A), [int(a).bit_count() for a in A])

    def test_lop3_follows_its_table(self) -> None:
        body = """
  ld.global.u32 %r10, [%rd2];
  lop3.b32 %r11, %r10, %r0, 255, 0x96;
  st.global.u32 [%rd2], %r11;
"""
        np.testing.assert_array_equal(run(body, A), A ^ np.arange(32, dtype=np.uint32) ^ np.uint32(255))

    def test_bit_fields(self) -> None:
        body = """
  ld.global.u32 %r10, [%rd2];
  bfe.s32 %r11, %r10, 5, 7;
  bfi.b32 %r12, %r11, %r10, 20, 4;
  prmt.b32 %r13, %r12, %r10, 0x7140;
  st.global.u32 [%rd2], %r13;
"""
        fields = (A.view(np.int32) << 20) >> 25
        inserted = (A & ~np.uint32(0xF00000)) | ((fields.view(np.uint32) & 15) << 20)
        low, one, four, seven = inserted & 255, A & 255, (inserted >> 8) & 255, A >> 24
        # The selector 0x7140 takes byte 0 of a, byte 0 of b, byte 1 of a and byte 3 of b.
        expected = low | one << 8 | four << 16 | seven << 24
        np.testing.assert_array_equal(run(body, A), expected.astype(np.uint32))


class Floats(unittest.TestCase):
    """Exactly rounded arithmetic."""

    def exact_fma(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[Fraction]:
        """Returns the exact values of a * b + c."""
        return [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c)]

    def test_fma_rounds_once_where_a_double_would_round_twice(self) -> None:
        # A product that is too small to matter.
        a, b = np.float32([2.0**-60, -(2.0**-60)]), np.float32([1.0, 1.0])
        c = np.float32([1.0, 1.0])
        halves = np.float32([1 + 2.0**-12])
        np.testing.assert_array_equal(fma_f32(a, b, c), c)
        # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: a tie, broken upwards by a tiny addend of the same sign.
        result = fma_f32(halves, halves, np.float32([2.0**-80]))
        self.assertEqual(result[0], np.float32(1 + 2.0**-11 + 2.0**-23))
        self.assertEqual(fma_f32(halves, halves, np.float32([-(2.0**-80)]))[0], np.float32(1 + 2.0**-11))

    def test_fma_agrees_with_fractions(self) -> None:
        random = np.random.default_rng(2)
        scale = np.exp2(random.integers(-70, 70, 3000)).astype(np.float32)
        a, b = (random.standard_normal(3000).astype(np.float32) for _ in range(2))
        c = (random.standard_normal(3000) * scale).astype(np.float32)
        for result, exact in zip(fma_f32(a, b, c), self.exact_fma(a, b, c)):
            self.assert_nearest(result, exact)
        for result, exact in zip(fma_f32_directed(a, b, c, "rm"), self.exact_fma(a, b, c)):
            self.assertLessEqual(Fraction(float(result)), exact)
            self.assertGreater(Fraction(float(np.nextafter(result, np.float32(np.inf)))), exact)

    def test_fma_of_doubles_agrees_with_fractions(self) -> None:
        random = np.random.default_rng(3)
        a, b, c = (random.standard_normal(2000) * np.exp2(random.integers(-40, 40, 2000)) for _ in range(3))
        for result, exact in zip(fma_f64(a, b, c), self.exact_fma(a, b, c)):
            self.assert_nearest(result, exact)

    def test_fma_with_subnormal_results(self) -> None:
        random = np.random.default_rng(4)
        a, b = (random.standard_normal(2000).astype(np.float32) * np.float32(2.0**-70) for _ in range(2))
        c = (random.standard_normal(2000) * 2.0**-140).astype(np.float32)
        for result, exact in zip(fma_f32(a, b, c), self.exact_fma(a, b, c)):
            self.assert_nearest(result, exact)

    def assert_nearest(self, result: np.floating, exact: Fraction) -> None:
        """Asserts that no neighbour of the result is nearer to the exact value."""
        error = abs(Fraction(float(result)) - exact)
        for direction in (-np.inf, np.inf):
            other = np.nextafter(result, type(result)(direction))
            self.assertLessEqual(error, abs(Fraction(float(other)) - exact))

    def test_arithmetic(self) -> None:
        others = FLOATS[::-1].copy()
        np.testing.assert_array_equal(run_binary("add.rn.f32", "f32", FLOATS, others), FLOATS + others)
        np.testing.assert_array_equal(run_binary("div.rn.f32", "f32", FLOATS, others), FLOATS / others)
        np.testing.assert_array_equal(unary("rcp.rn.f32", FLOATS, "f32", "f"), np.float32(1) / FLOATS)
        np.testing.assert_array_equal(unary("sqrt.rn.f32", abs(FLOATS), "f32", "f"), np.sqrt(abs(FLOATS)))
        np.testing.assert_array_equal(unary("neg.f32", FLOATS, "f32", "f"), -FLOATS)

    def test_max_prefers_numbers_and_positive_zero(self) -> None:
        a = np.resize(np.float32([np.nan, -0.0, 0.0, 1.0]), 32)
        b = np.resize(np.float32([2.0, 0.0, -0.0, np.nan]), 32)
        result = run_binary("max.f32", "f32", a, b)
        np.testing.assert_array_equal(
            result.view(np.uint32)[:4], np.float32([2.0, 0.0, 0.0, 1.0]).view(np.uint32)
        )
        result = run_binary("min.f32", "f32", a, b)
        np.testing.assert_array_equal(
            result.view(np.uint32)[:4], np.float32([2.0, -0.0, -0.0, 1.0]).view(np.uint32)
        )

    def test_copysign_takes_the_sign_of_its_first_source(self) -> None:
        signs = np.resize(np.float32([-1, 1]), 32)
        np.testing.assert_array_equal(
            run_binary("copysign.f32", "f32", signs, FLOATS), np.copysign(FLOATS, signs)
        )


if __name__ == "__main__":
    unittest.main()
