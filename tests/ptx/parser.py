# SPDX-License-Identifier: Apache-2.0
"""Reads the text of PTX modules. A kernel is decoded when it is asked for, since modules have megabytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from ptx.errors import PtxError
from ptx.operands import NUMPY_TYPES, Operand, parse_operand, size_of, split_operands

# Instructions after which execution does not simply continue with the next one.
CONTROL = frozenset({"bra", "ret", "exit", "bar", "barrier"})


@dataclass(frozen=True)
class Guard:
    """@%p or @!%p."""

    register: str
    is_negated: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction. `modifiers` are the parts of its name after the opcode."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    text: str

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Returns those modifiers that are types."""
        return tuple(part for part in self.modifiers if part in NUMPY_TYPES)

    @property
    def type(self) -> str:
        """Returns the last type, which most instructions operate on."""
        if not self.types:
            raise PtxError(f"no type in {self.text!r}")
        return self.types[-1]

    @property
    def is_barrier(self) -> bool:
        """Returns whether the instruction is a barrier of the block, not of a warp."""
        return self.opcode in ("bar", "barrier") and "warp" not in self.modifiers

    @property
    def is_control(self) -> bool:
        """Returns whether the crew executes the instruction: a branch, an exit or a barrier of the block."""
        return self.opcode in CONTROL and (self.opcode not in ("bar", "barrier") or self.is_barrier)


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter at an offset of the parameter space."""

    offset: int
    bytes: int


@dataclass(frozen=True)
class Variable:
    """A variable in shared or local memory. The dynamic shared memory has no length, so 0 bytes."""

    name: str
    alignment: int
    bytes: int


@dataclass
class Entry:
    """A decoded kernel."""

    name: str
    parameters: dict[str, Parameter]
    parameter_bytes: int
    shared: list[Variable]
    local: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?([\w$]+)(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(r"\.(shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(\[\d*\])?")
_LABEL = re.compile(r"([\w$]+)\s*:(?!:)\s*")
_GUARD = re.compile(r"@(!?)(%[\w$]+)\s+")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
# Braces open and close scopes, which inline assembly uses.
_BEFORE_STATEMENTS = "{} \t\n"
_RANGE = re.compile(r"(%?[\w$]+)<(\d+)>")


class Module:
    """The kernels of one PTX file."""

    def __init__(self, text: str) -> None:
        self._text = _COMMENT.sub("", text)
        target = re.search(r"\.target\s+(\w+)", self._text)
        if not target:
            raise PtxError("the module has no .target")
        self.target = target[1]
        self._places = {match[1]: match for match in _ENTRY.finditer(self._text)}
        self._shared = _variables(self._text[: self._text.find(".entry")], "shared")

    @property
    def names(self) -> list[str]:
        """Returns the kernels' mangled names."""
        return list(self._places)

    def entry(self, name: str) -> Entry:
        """Decodes a kernel by its mangled name."""
        return self._decode(self._places[name])

    def _decode(self, match: re.Match[str]) -> Entry:
        body = self._text[match.end() : self._end_of_body(match.end())]
        parameters, parameter_bytes = _parameters(match[2])
        shared = self._shared + _variables(body, "shared")
        entry = Entry(match[1], parameters, parameter_bytes, shared, _variables(body, "local"))
        for statement in body.split(";"):
            _decode_statement(entry, statement)
        return entry

    def _end_of_body(self, begin: int) -> int:
        """Returns where the body ends: at the next entry's directive or at the end of the module."""
        following = self._text.find(".entry", begin)
        last = len(self._text) if following < 0 else following
        return self._text.rfind("}", begin, last)


def _parameters(text: str) -> tuple[dict[str, Parameter], int]:
    """Returns the parameters by name, and the size of the parameter space."""
    parameters: dict[str, Parameter] = {}
    end = 0
    for alignment, ptx_type, name, count in _PARAMETER.findall(text):
        element_bytes = size_of(ptx_type)
        unit = max(int(alignment or 1), element_bytes)
        offset = (end + unit - 1) // unit * unit
        parameters[name] = Parameter(offset, element_bytes * int(count or 1))
        end = offset + parameters[name].bytes
    if text.count(".param") != len(parameters):
        raise PtxError(f"unknown form of parameter in {text!r}")
    return parameters, end


def _variables(text: str, space: str) -> list[Variable]:
    """Returns the variables of a state space that a text declares."""
    return [
        Variable(name, int(alignment or 1), size_of(ptx_type) * _count(brackets))
        for where, alignment, ptx_type, name, brackets in _VARIABLE.findall(text)
        if where == space
    ]


def _count(brackets: str) -> int:
    """Returns the number of elements: n for [n], 0 for [], and 1 without brackets."""
    return int(brackets[1:-1] or 0) if brackets else 1


def _decode_statement(entry: Entry, statement: str) -> None:
    """Adds an instruction, registers or labels to the entry. Scopes are ignored: names do not collide."""
    text = statement.lstrip(_BEFORE_STATEMENTS).rstrip()
    while match := _LABEL.match(text):
        entry.labels[match[1]] = len(entry.instructions)
        text = text[match.end() :].lstrip(_BEFORE_STATEMENTS)
    if not text:
        return
    if text.startswith(".reg"):
        _declare_registers(entry, text)
    elif not text.startswith("."):
        entry.instructions.append(decode_instruction(text))
    elif not text.startswith((".pragma", ".loc", ".shared", ".local", ".extern")):
        raise PtxError(f"unknown directive {text!r} in {entry.name}")


def _declare_registers(entry: Entry, text: str) -> None:
    match = _REGISTERS.match(text)
    if not match:
        raise PtxError(f"unknown declaration {text!r}")
    for part in match[2].split(","):
        counted = _RANGE.fullmatch(part.strip())
        names = [f"{counted[1]}{i}" for i in range(int(counted[2]))] if counted else [part.strip()]
        for name in names:
            if entry.registers.setdefault(name, match[1]) != match[1]:
                raise PtxError(f"{name} is declared with two types in {entry.name}")


def decode_instruction(text: str) -> Instruction:
    """Decodes one statement without its semicolon."""
    guard = None
    rest = text
    if match := _GUARD.match(text):
        guard = Guard(match[2], match[1] == "!")
        rest = text[match.end() :]
    name, *operands = rest.split(None, 1)
    opcode, *modifiers = name.replace("::", ".").split(".")
    return Instruction(
        opcode,
        tuple(modifiers),
        tuple(parse_operand(part) for part in split_operands(operands[0].strip() if operands else "")),
        guard,
        " ".join(text.split()),
    )
