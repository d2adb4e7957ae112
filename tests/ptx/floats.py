# SPDX-License-Identifier: Apache-2.0
"""Floating-point arithmetic. Results are rounded as IEEE 754 demands.

An `.approx` instruction has no specified bits. Here it is rounded correctly and the crew notes its name, so
that a replay can tell such kernels from those that must agree in bits. The payload of a NaN is not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from ptx.exact import flush_subnormals, fma_f32, fma_f32_directed, fma_f64
from ptx.parser import Instruction
from ptx.table import Operation, apply, compute, instruction, unknown

if TYPE_CHECKING:
    from ptx.crew import Crew

_ROUNDINGS = ("rn", "rm", "rp", "rz")


def rounding_of(what: Instruction) -> str:
    """Returns the rounding modifier, which is .rn by default."""
    return next((part for part in what.modifiers if part in _ROUNDINGS), "rn")


def _plain(what: Instruction) -> bool:
    return rounding_of(what) == "rn" and not {"ftz", "sat", "approx", "full"} & set(what.modifiers)


def _flushed(what: Instruction, function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Returns the function, with .ftz and .sat applied as the modifiers say."""
    if "ftz" in what.modifiers:
        inner = function
        function = lambda *sources: flush_subnormals(inner(*(flush_subnormals(x) for x in sources)))  # noqa: E731
    if "sat" in what.modifiers:
        unbounded = function
        function = lambda *sources: saturate(unbounded(*sources))  # noqa: E731
    return function


def saturate(x: np.ndarray) -> np.ndarray:
    """Applies .sat: limits values to [0, 1]. A NaN becomes 0."""
    return np.where(
        np.isnan(x), x.dtype.type(0), np.clip(x, x.dtype.type(0), x.dtype.type(1)) + x.dtype.type(0)
    )


def build_arithmetic(crew: "Crew", what: Instruction) -> Operation:
    """add, sub, mul of floats."""
    target, a, b = crew.row(what, 0), crew.row(what, 1), crew.row(what, 2)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[what.opcode]
    if rounding_of(what) != "rn":
        raise unknown(what)
    if _plain(what):
        return apply(function, target, a, b)
    return compute(_flushed(what, function), target, a, b)


@instruction("fma")
def build_fma(crew: "Crew", what: Instruction) -> Operation:
    """fma, rounded once."""
    rounding = rounding_of(what)
    sources = [crew.row(what, place) for place in (1, 2, 3)]
    function: Callable[..., np.ndarray]
    if what.type == "f32":
        function = fma_f32 if rounding == "rn" else lambda a, b, c: fma_f32_directed(a, b, c, rounding)
    elif what.type == "f64" and rounding == "rn":
        return _build_fma_f64(crew, what, sources)
    else:
        raise unknown(what)
    return compute(_flushed(what, function), crew.row(what, 0), *sources)


def _build_fma_f64(crew: "Crew", what: Instruction, sources: list[np.ndarray]) -> Operation:
    """fma.rn.f64. Its model checks the numbers' range, so that it runs on the chosen lanes alone."""
    target = crew.row(what, 0)
    return lambda lanes: lanes.put_selected(target, fma_f64(*(lanes.select(source) for source in sources)))


def build_division(crew: "Crew", what: Instruction) -> Operation:
    """div.rn. div.approx and div.full are approximate."""
    target, a, b = crew.row(what, 0), crew.row(what, 1), crew.row(what, 2)
    if what.opcode == "rem" or rounding_of(what) != "rn":
        raise unknown(what)
    if {"approx", "full"} & set(what.modifiers):
        crew.note_approximate(what)
    return compute(_flushed(what, np.divide), target, a, b)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return np.divide(x.dtype.type(1), x)


def _in_double(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


def _inverse_root(x: np.ndarray) -> np.ndarray:
    return 1.0 / np.sqrt(x)


_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sqrt": np.sqrt,
    "rcp": _reciprocal,
    "ex2": _in_double(np.exp2),
    "lg2": _in_double(np.log2),
    "tanh": _in_double(np.tanh),
    "rsqrt": _in_double(_inverse_root),
    "sin": _in_double(np.sin),
    "cos": _in_double(np.cos),
}


@instruction(*_UNARY)
def build_unary(crew: "Crew", what: Instruction) -> Operation:
    """sqrt.rn and rcp.rn are exact, all others are approximate."""
    if what.type not in ("f32", "f64") or rounding_of(what) != "rn":
        raise unknown(what)
    if what.opcode not in ("sqrt", "rcp") or "approx" in what.modifiers:
        crew.note_approximate(what)
    return compute(_flushed(what, _UNARY[what.opcode]), crew.row(what, 0), crew.row(what, 1))


def _maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the larger number. A NaN loses against a number, and -0 against +0."""
    result = np.fmax(a, b)
    is_zero = result == 0
    return np.where(is_zero & (a == b), a + b, result) if is_zero.any() else result


def _minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the smaller number. A NaN loses against a number, and +0 against -0."""
    return -_maximum(-a, -b)


def build_extremum(crew: "Crew", what: Instruction) -> Operation:
    """min and max of two floats."""
    if len(what.operands) != 3 or {"NaN", "xorsign", "abs"} & set(what.modifiers):
        raise unknown(what)
    function = _maximum if what.opcode == "max" else _minimum
    return compute(_flushed(what, function), crew.row(what, 0), crew.row(what, 1), crew.row(what, 2))


@instruction("copysign")
def build_copysign(crew: "Crew", what: Instruction) -> Operation:
    """copysign d, a, b: the magnitude of b with the sign of a."""
    target, sign, magnitude = crew.row(what, 0), crew.row(what, 1), crew.row(what, 2)
    return apply(np.copysign, target, magnitude, sign)
