# SPDX-License-Identifier: Apache-2.0
"""The table of instructions. Modules that implement instructions enter their functions here by opcode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from ptx.errors import PtxError
from ptx.lanes import Lanes
from ptx.parser import Instruction

if TYPE_CHECKING:
    from ptx.crew import Crew

# Executes one instruction for some lanes of the crew that it was built for.
Operation = Callable[[Lanes], None]
# Looks up the operands of an instruction in a crew's registers, and returns the operation.
Builder = Callable[["Crew", Instruction], Operation]

_BUILDERS: dict[str, Builder] = {}


def instruction(*opcodes: str) -> Callable[[Builder], Builder]:
    """Enters a builder for opcodes."""

    def enter(builder: Builder) -> Builder:
        for opcode in opcodes:
            if opcode in _BUILDERS:
                raise PtxError(f"two builders for {opcode}")
            _BUILDERS[opcode] = builder
        return builder

    return enter


def build(crew: "Crew", what: Instruction) -> Operation:
    """Returns the operation of an instruction, with its guard."""
    builder = _BUILDERS.get(what.opcode)
    if builder is None:
        raise unknown(what)
    operation = builder(crew, what)
    return operation if what.guard is None else _guarded(crew, what, operation)


def unknown(what: Instruction) -> PtxError:
    """Returns the error for an instruction or a form of one that is missing."""
    return PtxError(f"unknown instruction {what.text!r}: implement it in tests/ptx")


def _guarded(crew: "Crew", what: Instruction, operation: Operation) -> Operation:
    assert what.guard is not None
    predicate = crew.frame.predicate(what.guard.register)
    is_negated = what.guard.is_negated

    def run(lanes: Lanes) -> None:
        chosen = lanes.where(predicate, is_negated, crew.alive_count)
        if chosen.count:
            operation(chosen)

    return run


def apply(function: Callable[..., object], target: object, *sources: object) -> Operation:
    """Returns the operation target = function(sources...) for a numpy ufunc."""

    def run(lanes: Lanes) -> None:
        if lanes.is_everyone:
            function(*sources, target)
        else:
            function(*sources, out=target, where=lanes.mask)

    return run


def compute(function: Callable[..., object], target: object, *sources: object) -> Operation:
    """Returns the operation target = function(sources...) for a function that returns a new array."""

    def run(lanes: Lanes) -> None:
        lanes.put(target, function(*sources))  # type: ignore[arg-type]

    return run
