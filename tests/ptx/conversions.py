# SPDX-License-Identifier: Apache-2.0
"""Comparisons, moves and conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from ptx.exact import bf16_to_f32, f32_to_bf16, flush_subnormals, narrow_to_f32
from ptx.floats import rounding_of, saturate
from ptx.lanes import Lanes
from ptx.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW
from ptx.operands import NUMPY_TYPES, Name, Operand, Pair, Register, Vector, size_of
from ptx.parser import Instruction
from ptx.table import Operation, apply, compute, instruction, unknown

if TYPE_CHECKING:
    from ptx.crew import Crew

_COMPARISONS: dict[str, np.ufunc] = {
    "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_COMBINATIONS: dict[str, np.ufunc] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_ROUND_TO_INTEGER = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}


def _comparison(what: Instruction) -> Callable[..., np.ndarray]:
    """Returns the function of setp's comparison. Comparisons whose name ends with u also hold for NaN."""
    name = what.modifiers[0]
    is_float = what.type.startswith("f")
    if name in _COMPARISONS:
        if name == "ne" and is_float:
            return lambda a, b: np.not_equal(a, b) & ~(np.isnan(a) | np.isnan(b))
        return _COMPARISONS[name]
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if is_float and name[-1] == "u" and name[:-1] in _COMPARISONS:
        ordered = _COMPARISONS[name[:-1]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    raise unknown(what)


@instruction("setp")
def build_compare(crew: "Crew", what: Instruction) -> Operation:
    """setp, with one or two results and possibly a third predicate."""
    compare = _comparison(what)
    a, b = crew.row(what, 1), crew.row(what, 2)
    result = what.operands[0]
    combination = next((part for part in what.modifiers[1:] if part in _COMBINATIONS), None)
    if "ftz" in what.modifiers:
        plain = compare
        compare = lambda x, y: plain(flush_subnormals(x), flush_subnormals(y))  # noqa: E731
    if isinstance(result, Register) and combination is None:
        target = crew.frame.predicate(result.name)
        return (
            apply(compare, target, a, b) if isinstance(compare, np.ufunc) else compute(compare, target, a, b)
        )
    targets = _predicate_targets(crew, result)
    third = crew.predicate_source(what.operands[3]) if combination else None

    def run(lanes: Lanes) -> None:
        holds = compare(a, b)
        results = [holds, ~holds]
        if combination and third is not None:
            results = [_COMBINATIONS[combination](value, third()) for value in results]
        for target, value in zip(targets, results):
            lanes.put(target, value)

    return run


def _predicate_targets(crew: "Crew", result: Operand) -> list[np.ndarray]:
    registers = [result.first, result.second] if isinstance(result, Pair) else [result]
    return [crew.frame.write(register, "pred") for register in registers]


@instruction("mov")
def build_move(crew: "Crew", what: Instruction) -> Operation:
    """mov of a register, of a variable's address, or between a register and its parts."""
    target, source = what.operands
    if isinstance(target, Vector):
        return _build_unpack(crew, target, crew.frame.read(source, what.type))
    if isinstance(source, Vector):
        return _build_pack(crew, what, source)
    if isinstance(source, Name):
        value = np.dtype(NUMPY_TYPES[what.type]).type(crew.frame.symbol(source.text))
        row = crew.row(what, 0)
        return lambda lanes: lanes.put(row, value)
    to, row = crew.row(what, 0), crew.row(what, 1)
    return lambda lanes: lanes.put(to, row)


def _build_unpack(crew: "Crew", target: Vector, source: np.ndarray) -> Operation:
    count = len(target.elements)
    part_type = f"b{8 * source.itemsize // count}"
    parts = source.view(NUMPY_TYPES[part_type]).reshape(-1, count)
    rows = [crew.frame.write(element, part_type) for element in target.elements]

    def run(lanes: Lanes) -> None:
        # A copy, since a result may be a source.
        for row, values in zip(rows, np.ascontiguousarray(parts.T)):
            lanes.put(row, values)

    return run


def _build_pack(crew: "Crew", what: Instruction, source: Vector) -> Operation:
    row = crew.row(what, 0)
    part_type = f"b{8 * row.itemsize // len(source.elements)}"
    parts = [crew.frame.read(element, part_type) for element in source.elements]
    return compute(lambda *values: np.stack(values, axis=1).view(row.dtype)[:, 0], row, *parts)


@instruction("cvta")
def build_convert_address(crew: "Crew", what: Instruction) -> Operation:
    """cvta: between generic addresses and those of a window. Global addresses are generic ones."""
    target, source = crew.row(what, 0), crew.row(what, 1)
    windows = {"global": 0, "shared": SHARED_WINDOW, "param": PARAMETER_WINDOW, "local": LOCAL_WINDOW}
    window = next((windows[part] for part in what.modifiers if part in windows), None)
    if window is None:
        raise unknown(what)
    function = np.subtract if "to" in what.modifiers else np.add
    return apply(function, target, source, target.dtype.type(window))


@instruction("cvt")
def build_convert(crew: "Crew", what: Instruction) -> Operation:
    """cvt between integers and floats, with rounding and saturation."""
    if len(what.types) != 2:
        raise unknown(what)
    to, of = what.types
    if to in ("bf16x2", "f16x2"):
        return _build_convert_pair(crew, what)
    source = crew.frame.read(what.operands[1], of)
    convert = _conversion(what, to, of)
    target, extend = _target_of_conversion(crew, what, to)
    return lambda lanes: lanes.put(target, extend(convert(source)))


def _target_of_conversion(
    crew: "Crew", what: Instruction, to: str
) -> tuple[np.ndarray, Callable[..., np.ndarray]]:
    """Returns the register, and a function that extends a result to the register if that is wider."""
    stored_size = crew.frame.stored_size(what.operands[0])
    if stored_size == size_of(to):
        return crew.frame.write(what.operands[0], to), lambda values: values
    kind = NUMPY_TYPES[to]
    wide = np.dtype(f"{'i' if to.startswith('s') else 'u'}{stored_size}")
    target = crew.frame.stored(what.operands[0]).view(wide)
    return target, lambda values: values.view(kind).astype(wide)


def _build_convert_pair(crew: "Crew", what: Instruction) -> Operation:
    """cvt.rn.bf16x2.f32 d, a, b: a becomes the upper half, b the lower half."""
    if rounding_of(what) != "rn" or {"relu", "satfinite"} & set(what.modifiers):
        raise unknown(what)
    narrow = f32_to_bf16 if what.types[0] == "bf16x2" else f32_to_f16
    upper, lower = (crew.frame.read(operand, "f32") for operand in what.operands[1:3])

    def pack(high: np.ndarray, low: np.ndarray) -> np.ndarray:
        return (narrow(high).astype(np.uint32) << np.uint32(16)) | narrow(low)

    return compute(pack, crew.frame.write(what.operands[0], "u32"), upper, lower)


def f32_to_f16(x: np.ndarray) -> np.ndarray:
    """Converts float32 to bit patterns of float16, to nearest even. A NaN becomes 0x7fff."""
    return np.where(np.isnan(x), np.uint16(0x7FFF), x.astype(np.float16).view(np.uint16))


def _conversion(what: Instruction, to: str, of: str) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function from values of one type to values of the other."""
    if "ftz" in what.modifiers or {"relu", "satfinite"} & set(what.modifiers):
        raise unknown(what)
    halves = {"bf16": bf16_to_f32, "f16": lambda bits: bits.view(np.float16).astype(np.float32)}
    if of in halves:
        return _compose(what, halves[of], to, "f32")
    return _compose(what, lambda x: x, to, of)


def _compose(
    what: Instruction, widen: Callable[[np.ndarray], np.ndarray], to: str, of: str
) -> Callable[[np.ndarray], np.ndarray]:
    if to in ("bf16", "f16"):
        if of != "f32" or rounding_of(what) != "rn":
            raise unknown(what)
        narrow = f32_to_bf16 if to == "bf16" else f32_to_f16
        return lambda x: narrow(widen(x))
    inner = _float_conversion(what, to) if of.startswith("f") else _integer_conversion(what, to, of)
    return lambda x: inner(widen(x))


def _integer_conversion(what: Instruction, to: str, of: str) -> Callable[[np.ndarray], np.ndarray]:
    kind = np.dtype(NUMPY_TYPES[to])
    if "sat" in what.modifiers or (to.startswith("f") and rounding_of(what) != "rn"):
        raise unknown(what)
    del of
    return lambda x: x.astype(kind)


def _float_conversion(what: Instruction, to: str) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the conversion of f32 or f64 to f32, f64 or an integer."""
    kind = np.dtype(NUMPY_TYPES[to])
    to_integer = next((_ROUND_TO_INTEGER[part] for part in what.modifiers if part in _ROUND_TO_INTEGER), None)
    if kind.kind in "iu":
        if to_integer is None:
            raise unknown(what)
        return lambda x: _to_integer(to_integer(x), kind)
    is_saturated = "sat" in what.modifiers
    rounding = rounding_of(what)

    def convert(x: np.ndarray) -> np.ndarray:
        if to_integer is not None:
            x = to_integer(x)
        result = narrow_to_f32(x, rounding) if x.itemsize > kind.itemsize else x.astype(kind)
        return saturate(result) if is_saturated else result

    return convert


def _to_integer(x: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Converts whole numbers to integers. Values beyond the range become its ends, and a NaN becomes 0."""
    limits = np.iinfo(kind)
    # The largest 64-bit integers are not doubles. Values from 2^63 or 2^64 on are replaced after the
    # conversion.
    wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    is_high, is_low = wide >= float(limits.max), wide <= float(limits.min)
    result = np.where(is_high | is_low, 0.0, wide).astype(kind)
    return np.where(is_high, kind.type(limits.max), np.where(is_low, kind.type(limits.min), result))
