# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations that numpy lacks, rounded exactly as the PTX ISA specifies them.

A sum rounded to odd in a wide format can be rounded again to a narrow format without a double rounding error.
"""

from __future__ import annotations

import numpy as np

# A double keeps 29 more fraction bits than a float. This pattern of them is half of a float's last place.
_DISCARDED_BITS = np.int64((1 << 29) - 1)
_HALF_OF_LAST_PLACE = np.int64(1 << 28)
# Below this magnitude floats are subnormal, so they keep fewer bits than _DISCARDED_BITS assumes.
_SMALLEST_SAFE = 2.0**-125
# Veltkamp's constant splits a double into two halves of 26 bits.
_SPLITTER = float((1 << 27) + 1)


def add_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns a + b in float64, rounded to odd: an inexact sum gets the neighbour with an odd last bit."""
    total, error = two_sum(a, b)
    bits = total.view(np.int64)
    is_inexact_and_even = (error != 0) & np.isfinite(error) & np.isfinite(total) & ((bits & 1) == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return (bits + np.where(is_inexact_and_even, step, 0)).view(np.float64)


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rounded sum of two doubles and its exact error."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rounded product of two doubles and its exact error, if nothing overflows or underflows."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def _split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = _SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high


def fma_f32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns a * b + c in float32, rounded once to nearest even."""
    product = a.astype(np.float64)
    product *= b
    addend = c.astype(np.float64)
    total = product + addend
    discarded = total.view(np.int64) & _DISCARDED_BITS
    is_risky = (discarded == _HALF_OF_LAST_PLACE) | ((np.abs(total) < _SMALLEST_SAFE) & (total != 0))
    if is_risky.any():
        total[is_risky] = add_to_odd(product[is_risky], addend[is_risky])
    return total.astype(np.float32)


def fma_f32_directed(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounding: str) -> np.ndarray:
    """Returns a * b + c in float32, rounded as .rn, .rm (down), .rp (up) or .rz (toward zero) says."""
    total = add_to_odd(a.astype(np.float64) * b, c.astype(np.float64))
    return narrow_to_f32(total, rounding)


def narrow_to_f32(x: np.ndarray, rounding: str) -> np.ndarray:
    """Converts float64 to float32 with PTX's rounding modifier."""
    near = x.astype(np.float32)
    if rounding == "rn":
        return near
    back = near.astype(np.float64)
    lower = np.nextafter(near, np.float32(-np.inf))
    upper = np.nextafter(near, np.float32(np.inf))
    down = np.where(back > x, lower, near)
    up = np.where(back < x, upper, near)
    if rounding == "rm":
        return down
    if rounding == "rp":
        return up
    return np.where(x > 0, down, up)


def fma_f64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns a * b + c in float64, rounded once to nearest even.

    The method is that of Boldo and Melquiond (Emulation of FMA and correctly rounded sums, 2008). It assumes
    that the exact product's parts neither overflow nor underflow, which check_f64_range demands.
    """
    check_f64_range(a, b)
    product, product_error = two_product(a, b)
    upper, upper_error = two_sum(c, product_error)
    total, total_error = two_sum(product, upper)
    return total + add_to_odd(total_error, upper_error)


def check_f64_range(a: np.ndarray, b: np.ndarray) -> None:
    """Raises ValueError if fma_f64 cannot split the factors' product without error."""
    product = np.abs(a * b)
    is_safe = (product == 0) | ((product > 2.0**-900) & (product < 2.0**900))
    if not is_safe.all():
        raise ValueError("fma.rn.f64: a product is outside 2^-900 to 2^900, which this model does not cover")


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """Converts bit patterns of bfloat16 to float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: np.ndarray) -> np.ndarray:
    """Converts float32 to bit patterns of bfloat16, to nearest even. A NaN becomes 0x7fff."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    is_odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + (np.uint32(0x7FFF) + is_odd)) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded)


def flush_subnormals(x: np.ndarray) -> np.ndarray:
    """Applies .ftz: a subnormal float becomes a zero with the same sign."""
    tiny = np.abs(x) < np.float32(2.0**-126)
    return np.where(tiny, np.copysign(np.float32(0), x), x)
