# SPDX-License-Identifier: Apache-2.0
"""Operands of PTX instructions: registers, constants, addresses, vectors and names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

import numpy as np

from ptx.errors import PtxError

# The numpy type that an instruction's type reads and writes. bf16 and f16 are bit patterns.
NUMPY_TYPES: dict[str, type] = {
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8,
    "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "f16": np.uint16, "bf16": np.uint16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32,
    "f16x2": np.uint32, "bf16x2": np.uint32,
    "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64,
    "pred": np.bool_,
}  # fmt: skip


def size_of(ptx_type: str) -> int:
    """Returns the bytes of a PTX type."""
    return np.dtype(NUMPY_TYPES[ptx_type]).itemsize


@dataclass(frozen=True)
class Register:
    """A register such as %r1, or `!%p1` for a negated predicate."""

    name: str
    is_negated: bool = False


@dataclass(frozen=True)
class Special:
    """A read-only register such as %tid.x."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A literal. `value` is an integer, or the bits of a float if `float_type` is f32 or f64."""

    value: int
    float_type: str = ""

    def to_array(self, ptx_type: str) -> np.ndarray:
        """Returns the constant as an array of one element of the numpy type."""
        wanted = np.dtype(NUMPY_TYPES[ptx_type])
        if self.float_type:
            bits = np.array([self.value], np.uint32 if self.float_type == "f32" else np.uint64)
            number = bits.view(NUMPY_TYPES[self.float_type])
            if wanted.kind == "f":
                return number.astype(wanted)
            return bits.astype(f"u{wanted.itemsize}")
        if wanted.kind == "f":
            return np.array([self.value], wanted)
        mask = (1 << (8 * wanted.itemsize)) - 1
        return np.array([self.value & mask], f"u{wanted.itemsize}").view(wanted)


@dataclass(frozen=True)
class Address:
    """[base + offset], where the base is a register or the name of a variable."""

    base: str
    offset: int

    @property
    def is_register(self) -> bool:
        """Returns whether the base is a register."""
        return self.base.startswith("%")


@dataclass(frozen=True)
class Vector:
    """{a, b, ...}."""

    elements: tuple["Operand", ...]


@dataclass(frozen=True)
class Pair:
    """a|b, two results."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True)
class Name:
    """A label or the name of a variable."""

    text: str


Operand = Union[Register, Special, Constant, Address, Vector, Pair, Name]

_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.[xyz]|%(laneid|warpid|lanemask_\w+|clock\w*|smid)")
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")
_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?(?:0x)?[0-9a-fA-F]+))?\s*\]")
_NAME = re.compile(r"[\w$.]+")


def split_operands(text: str) -> list[str]:
    """Splits at commas outside of braces and brackets."""
    parts: list[str] = []
    depth = 0
    begin = 0
    if "{" not in text:
        return [part.strip() for part in text.split(",")] if text else []
    for at, letter in enumerate(text):
        if letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    parts.append(text[begin:].strip())
    return parts


@lru_cache(maxsize=100_000)
def parse_operand(text: str) -> Operand:
    """Parses one operand."""
    if text.startswith("%"):
        if "|" in text:
            first, second = text.split("|")
            return Pair(parse_operand(first.strip()), parse_operand(second.strip()))
        return Special(text) if _SPECIAL.fullmatch(text) else Register(text)
    if text.startswith("!"):
        return Register(text[1:].strip(), is_negated=True)
    if text.startswith("{"):
        return Vector(tuple(parse_operand(part) for part in split_operands(text[1:-1].strip())))
    if text.startswith("["):
        match = _ADDRESS.fullmatch(text)
        if not match:
            raise PtxError(f"unknown form of address {text!r}")
        return Address(match[1], int(match[2] or "0", 0))
    if text[:2] in ("0f", "0F"):
        return Constant(int(text[2:], 16), "f32")
    if text[:2] in ("0d", "0D"):
        return Constant(int(text[2:], 16), "f64")
    if _INTEGER.fullmatch(text):
        return Constant(int(text.rstrip("U"), 0))
    if _NAME.fullmatch(text):
        return Name(text)
    raise PtxError(f"unknown operand {text!r}")
