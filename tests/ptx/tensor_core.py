# SPDX-License-Identifier: Apache-2.0
"""A model of mma.m16n8k16 with 16-bit inputs and fp32 sums, equal in bits to the published models.

The facts are those of MMA-Sim (arXiv 2511.10909), with which Hawkeye (arXiv 2603.20421) agrees:
* Products are exact. Their exponent is the sum of their factors' exponents, and is not normalised.
* A fused sum aligns all products and the addend to the largest of their exponents. It cuts each term toward
  zero after a number of fraction bits, adds exactly, and rounds the sum toward zero to fp32.
* Ampere makes two fused sums of 8 products with 24 fraction bits, the second of which takes the first as its
  addend. Hopper makes one fused sum of 16 products with 25 fraction bits.
tests/golden/mma_m16n8k16.bin has tiles of that model, with which a test compares this one. No GPU
computed them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptx.exact import bf16_to_f32

CANONICAL_NAN = np.uint32(0x7FFFFFFF)
_LEAST_F32_EXPONENT = -126
_LEAST_F16_EXPONENT = -14
_F32_UNITS_BELOW_LEAST = 23
# Smaller than every exponent of a product, so that a zero never decides where terms are cut.
_EXPONENT_OF_ZERO = -2000
_EXPONENT_BITS_OF_F64 = np.int64(0x7FF) << np.int64(52)


@dataclass(frozen=True)
class Architecture:
    """The numbers that differ between generations of tensor cores."""

    name: str
    products_per_sum: int
    fraction_bits: int


ARCHITECTURES = {
    "sm_80": Architecture("Ampere", products_per_sum=8, fraction_bits=24),
    "sm_90a": Architecture("Hopper", products_per_sum=16, fraction_bits=25),
}


def widen(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Converts bit patterns of bf16 or f16 to float64, which is exact."""
    if dtype == "bf16":
        return bf16_to_f32(bits).astype(np.float64)
    return bits.view(np.float16).astype(np.float64)


def exponents(values: np.ndarray, least: int) -> np.ndarray:
    """Returns floor(log2 |value|) of doubles, at least `least`. Zeros get _EXPONENT_OF_ZERO."""
    biased = (values.view(np.int64) & _EXPONENT_BITS_OF_F64) >> np.int64(52)
    result = np.maximum(biased - 1023, least).astype(np.int16)
    result[values == 0] = _EXPONENT_OF_ZERO
    return result


def power_of_two(exponent: np.ndarray) -> np.ndarray:
    """Returns 2^exponent as doubles, for exponents between -1022 and 1023."""
    return ((exponent.astype(np.int64) + 1023) << np.int64(52)).view(np.float64)


def toward_zero(x: np.ndarray) -> np.ndarray:
    """Converts doubles to fp32, rounded toward zero. A magnitude of 2^128 or more becomes infinite."""
    is_subnormal = np.abs(x) < 2.0**_LEAST_F32_EXPONENT
    unit = 2.0 ** (_LEAST_F32_EXPONENT - _F32_UNITS_BELOW_LEAST)
    small = np.trunc(np.where(is_subnormal, x, 0.0) / unit) * unit
    cut = (np.ascontiguousarray(x).view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)
    return np.where(is_subnormal, small, cut).astype(np.float32)


def multiply(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, dtype: str, architecture: Architecture
) -> np.ndarray:
    """Returns a . b + c for many tiles.

    a [tiles, 16, 16] and b [tiles, 16, 8] are bit patterns of dtype, c [tiles, 16, 8] is float32.
    """
    least = _LEAST_F32_EXPONENT if dtype == "bf16" else _LEAST_F16_EXPONENT
    rows = widen(a, dtype)[:, :, None, :]
    columns = widen(np.ascontiguousarray(b.transpose(0, 2, 1)), dtype)[:, None, :, :]
    row_exponents = exponents(rows, least)
    column_exponents = exponents(columns, least)
    total = c
    for first in range(0, 16, architecture.products_per_sum):
        part = slice(first, first + architecture.products_per_sum)
        products = rows[..., part] * columns[..., part]
        largest = (row_exponents[..., part] + column_exponents[..., part]).max(axis=-1)
        total = _fused_sum(products, largest, total, architecture.fraction_bits)
    return total


def _fused_sum(
    products: np.ndarray, largest: np.ndarray, addend: np.ndarray, fraction_bits: int
) -> np.ndarray:
    """Returns the fused sum of products [..., n] and an addend. `largest` is the products' top exponent."""
    wide = addend.astype(np.float64)
    place = np.maximum(largest, exponents(wide, _LEAST_F32_EXPONENT))
    # If every term is zero the place does not matter. The clip keeps the powers below in range.
    place = np.clip(place, -400, 400) - fraction_bits
    scale = power_of_two(-place)
    terms = products * scale[..., None]
    np.trunc(terms, out=terms)
    total = terms.sum(axis=-1) + np.trunc(wide * scale)
    result = toward_zero(total * power_of_two(place))
    if not np.isfinite(total).all():
        result = np.where(np.isfinite(total), result, _special_sum(products, wide))
    return result


def _special_sum(products: np.ndarray, addend: np.ndarray) -> np.ndarray:
    """Returns the sum where a term is infinite or NaN: an infinity, or the canonical NaN."""
    total = (products.sum(axis=-1) + addend).astype(np.float32)
    return np.where(np.isnan(total), CANONICAL_NAN.view(np.float32), total)


def rows_and_columns_of_fragments() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns where the elements of a lane's registers are in a, b and c, as the PTX ISA's figures define it.

    Shapes are [32, elements]. Elements 2 i and 2 i + 1 of a and b are the halves of register i.
    """
    group = (np.arange(32) // 4)[:, None]
    within = (np.arange(32) % 4)[:, None]
    of_a, of_b, of_c = np.arange(8)[None], np.arange(4)[None], np.arange(4)[None]
    return {
        "a": (group + 8 * ((of_a >> 1) & 1), 2 * within + (of_a & 1) + 8 * (of_a >> 2)),
        "b": (2 * within + (of_b & 1) + 8 * (of_b >> 1), group + 0 * of_b),
        "c": (group + 8 * (of_c >> 1), 2 * within + (of_c & 1)),
    }
