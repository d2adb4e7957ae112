# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic, logic, shifts and bit fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptx import floats
from ptx.errors import Trap
from ptx.lanes import Lanes
from ptx.operands import NUMPY_TYPES, Constant, Register, size_of
from ptx.parser import Instruction
from ptx.table import Operation, apply, compute, instruction, unknown

if TYPE_CHECKING:
    from ptx.crew import Crew

_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def is_float(ptx_type: str) -> bool:
    """Returns whether a type is f32 or f64."""
    return ptx_type in ("f32", "f64")


@instruction("add", "sub", "mul")
def build_arithmetic(crew: "Crew", what: Instruction) -> Operation:
    """add, sub, mul; also mul.wide and mul.hi."""
    if is_float(what.type):
        return floats.build_arithmetic(crew, what)
    if what.type not in NUMPY_TYPES or {"sat", "cc"} & set(what.modifiers):
        raise unknown(what)
    if "wide" in what.modifiers:
        return _build_wide(crew, what)
    target, a, b = crew.row(what, 0), crew.row(what, 1), crew.row(what, 2)
    if "hi" in what.modifiers:
        return compute(_high_product(what), target, a, b)
    return apply({"add": np.add, "sub": np.subtract, "mul": np.multiply}[what.opcode], target, a, b)


def _build_wide(crew: "Crew", what: Instruction) -> Operation:
    wide = np.dtype(NUMPY_TYPES[_WIDE[what.type]])
    target = crew.frame.write(what.operands[0], _WIDE[what.type])
    a, b = crew.row(what, 1), crew.row(what, 2)
    return compute(lambda x, y: x.astype(wide) * y, target, a, b)


def _high_product(what: Instruction) -> "np.ufunc":
    """Returns the function for the upper half of a product of 32-bit numbers."""
    if size_of(what.type) != 4:
        raise unknown(what)
    wide = np.dtype(NUMPY_TYPES[_WIDE[what.type]])
    return lambda x, y: ((x.astype(wide) * y) >> wide.type(32)).astype(x.dtype)  # type: ignore[return-value]


@instruction("mad")
def build_mad(crew: "Crew", what: Instruction) -> Operation:
    """mad.lo and mad.wide."""
    if is_float(what.type):
        return floats.build_fma(crew, what)
    a, b = crew.row(what, 1), crew.row(what, 2)
    if "wide" in what.modifiers:
        wide = NUMPY_TYPES[_WIDE[what.type]]
        target = crew.frame.write(what.operands[0], _WIDE[what.type])
        c = crew.frame.read(what.operands[3], _WIDE[what.type])
        return compute(lambda x, y, z: x.astype(wide) * y + z, target, a, b, c)
    if "lo" not in what.modifiers:
        raise unknown(what)
    return compute(lambda x, y, z: x * y + z, crew.row(what, 0), a, b, crew.row(what, 3))


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns a / b, rounded toward zero."""
    quotient = a // b
    if a.dtype.kind == "i":
        quotient += ((quotient * b) != a) & ((a < 0) != (b < 0))
    return quotient


@instruction("div", "rem")
def build_division(crew: "Crew", what: Instruction) -> Operation:
    """div and rem. A division by zero is a trap, since PTX leaves its result open."""
    if is_float(what.type):
        return floats.build_division(crew, what)
    target, a, b = crew.row(what, 0), crew.row(what, 1), crew.row(what, 2)
    is_quotient = what.opcode == "div"

    def run(lanes: Lanes) -> None:
        if not lanes.select(b).all():
            raise Trap("division by zero", what.text)
        quotient = _quotient(a, b)
        lanes.put(target, quotient if is_quotient else a - quotient * b)

    return run


@instruction("neg", "abs")
def build_sign(crew: "Crew", what: Instruction) -> Operation:
    """neg and abs."""
    target, source = crew.row(what, 0), crew.row(what, 1)
    if is_float(what.type):
        # Only the sign bit changes, also of a NaN.
        bits, wide = f"u{target.itemsize}", 8 * target.itemsize - 1
        sign = np.dtype(bits).type(1 << wide)
        if what.opcode == "abs":
            return apply(np.bitwise_and, target.view(bits), source.view(bits), np.dtype(bits).type(~sign))
        return apply(np.bitwise_xor, target.view(bits), source.view(bits), sign)
    return apply(np.negative if what.opcode == "neg" else np.absolute, target, source)


@instruction("min", "max")
def build_extremum(crew: "Crew", what: Instruction) -> Operation:
    """min and max."""
    if is_float(what.type):
        return floats.build_extremum(crew, what)
    function = np.minimum if what.opcode == "min" else np.maximum
    return apply(function, crew.row(what, 0), crew.row(what, 1), crew.row(what, 2))


@instruction("and", "or", "xor")
def build_logic(crew: "Crew", what: Instruction) -> Operation:
    """and, or, xor of integers and predicates."""
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[what.opcode]
    return apply(function, crew.row(what, 0), crew.row(what, 1), crew.row(what, 2))


@instruction("not")
def build_not(crew: "Crew", what: Instruction) -> Operation:
    """not of integers and predicates."""
    return apply(np.invert, crew.row(what, 0), crew.row(what, 1))


@instruction("shl", "shr")
def build_shift(crew: "Crew", what: Instruction) -> Operation:
    """shl and shr. A shift by the width or more gives 0, or copies of the sign."""
    target, source = crew.row(what, 0), crew.row(what, 1)
    amount = crew.frame.read(what.operands[2], "u32")
    width = 8 * target.itemsize
    is_signed = what.opcode == "shr" and what.type.startswith("s")
    if what.opcode == "shl":
        target, source = target.view(f"u{target.itemsize}"), source.view(f"u{target.itemsize}")
    function = np.left_shift if what.opcode == "shl" else np.right_shift
    if isinstance(what.operands[2], Constant):
        by = min(what.operands[2].value, width - 1) if is_signed else what.operands[2].value
        if by < width:
            return apply(function, target, source, source.dtype.type(by))
        return compute(np.zeros_like, target, source)

    def shift(x: np.ndarray, by: np.ndarray) -> np.ndarray:
        shifted = function(x, np.minimum(by, width - 1).astype(x.dtype))
        return shifted if is_signed else np.where(by < width, shifted, x.dtype.type(0))

    return compute(shift, target, source, amount)


@instruction("shf")
def build_funnel_shift(crew: "Crew", what: Instruction) -> Operation:
    """shf: shifts the 64 bits of two registers."""
    low, high, amount = (crew.frame.read(operand, "u32") for operand in what.operands[1:4])
    is_wrapped, is_left = "wrap" in what.modifiers, "l" in what.modifiers

    def shift(low_bits: np.ndarray, high_bits: np.ndarray, by: np.ndarray) -> np.ndarray:
        limited = (by & np.uint32(31)) if is_wrapped else np.minimum(by, 32)
        both = (high_bits.astype(np.uint64) << np.uint64(32)) | low_bits
        if is_left:
            return ((both << limited.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
        return (both >> limited.astype(np.uint64)).astype(np.uint32)

    return compute(shift, crew.frame.write(what.operands[0], "u32"), low, high, amount)


@instruction("bfi")
def build_bit_field_insert(crew: "Crew", what: Instruction) -> Operation:
    """bfi: copies the low bits of a to a place in b."""
    target, a, b = crew.row(what, 0), crew.row(what, 1), crew.row(what, 2)
    start, length = (crew.frame.read(operand, "u32") for operand in what.operands[3:5])
    width = 8 * target.itemsize
    kind = target.dtype

    def insert(x: np.ndarray, y: np.ndarray, place: np.ndarray, count: np.ndarray) -> np.ndarray:
        place, count = place & np.uint32(255), count & np.uint32(255)
        bits = _low_bits(np.minimum(count, width), kind)
        shift = np.minimum(place, width - 1).astype(kind)
        mask = np.where(place < width, bits << shift, kind.type(0))
        return (y & ~mask) | ((x << shift) & mask)

    return compute(insert, target, a, b, start, length)


@instruction("bfe")
def build_bit_field_extract(crew: "Crew", what: Instruction) -> Operation:
    """bfe: extracts a bit field, sign-extended for signed types."""
    if size_of(what.type) != 4:
        raise unknown(what)
    is_signed = what.type.startswith("s")
    start, length = (crew.frame.read(operand, "u32") for operand in what.operands[2:4])

    def extract(x: np.ndarray, place: np.ndarray, count: np.ndarray) -> np.ndarray:
        wide = x.astype(np.int64)
        place = np.minimum(place & np.uint32(255), 63).astype(np.int64)
        count = np.minimum(count & np.uint32(255), 32).astype(np.int64)
        field = (wide >> place) & ((np.int64(1) << count) - 1)
        if is_signed:
            sign = np.where(count > 0, np.int64(1) << np.maximum(count - 1, 0), 0)
            field = np.where(field & sign, field - (np.int64(1) << count), field)
        return field.astype(x.dtype)

    return compute(extract, crew.row(what, 0), crew.row(what, 1), start, length)


def _low_bits(count: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Returns numbers whose lowest `count` bits are set."""
    width = 8 * kind.itemsize
    bits = (kind.type(1) << np.minimum(count, width - 1).astype(kind)) - kind.type(1)
    return np.where(count >= width, ~kind.type(0), bits)


@instruction("popc")
def build_count_bits(crew: "Crew", what: Instruction) -> Operation:
    """popc: counts bits."""
    return compute(np.bitwise_count, crew.frame.write(what.operands[0], "u32"), crew.row(what, 1))


@instruction("lop3")
def build_lop3(crew: "Crew", what: Instruction) -> Operation:
    """lop3: any function of three bits, by a table of eight results."""
    *_, table = what.operands
    if not isinstance(table, Constant):
        raise unknown(what)

    def look_up(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        result = np.zeros_like(a)
        for case in range(8):
            if table.value >> case & 1:
                result |= (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
        return result

    return compute(look_up, crew.row(what, 0), crew.row(what, 1), crew.row(what, 2), crew.row(what, 3))


@instruction("prmt")
def build_permute(crew: "Crew", what: Instruction) -> Operation:
    """prmt: chooses four of the eight bytes of two registers."""
    if len(what.modifiers) != 1:
        raise unknown(what)

    def permute(a: np.ndarray, b: np.ndarray, choice: np.ndarray) -> np.ndarray:
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        result = np.zeros_like(a)
        for place in range(4):
            nibble = (choice >> np.uint32(4 * place)) & np.uint32(15)
            byte = (
                (both >> ((nibble & np.uint32(7)) * np.uint32(8)).astype(np.uint64)) & np.uint64(255)
            ).astype(np.uint32)
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            result |= np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * place)
        return result

    return compute(permute, crew.row(what, 0), crew.row(what, 1), crew.row(what, 2), crew.row(what, 3))


@instruction("selp")
def build_select(crew: "Crew", what: Instruction) -> Operation:
    """selp: chooses by a predicate."""
    chooser = what.operands[3]
    if not isinstance(chooser, Register):
        raise unknown(what)
    return compute(
        np.where, crew.row(what, 0), crew.frame.predicate(chooser.name), crew.row(what, 1), crew.row(what, 2)
    )
