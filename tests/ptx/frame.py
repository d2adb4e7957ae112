# SPDX-License-Identifier: Apache-2.0
"""The registers of a crew of warps: one row of values per register, one column per lane."""

from __future__ import annotations

import numpy as np

from ptx.errors import PtxError
from ptx.operands import NUMPY_TYPES, Constant, Name, Operand, Register, Special, size_of
from ptx.parser import Entry

# A pattern that is a NaN in both halves of a register, and an address that no memory has.
_POISON = 0x7FD57FD57FD57FD5


class Frame:
    """The registers of `lanes` lanes.

    read() and write() return arrays that stay the same for the life of the frame. So an instruction looks up
    its operands once. The arrays of one register in several types share their memory.
    """

    def __init__(self, entry: Entry, lanes: int, symbols: dict[str, int]) -> None:
        self.entry = entry
        self.lanes = lanes
        self._symbols = symbols
        self._constants: dict[tuple[Operand, str], np.ndarray] = {}
        self._rows: dict[tuple[str, str], np.ndarray] = {}
        self._specials: dict[str, np.ndarray] = {}
        self._storage: dict[str, np.ndarray] = {}
        self._files: list[np.ndarray] = []
        self._allocate()

    def _allocate(self) -> None:
        by_size: dict[int, list[str]] = {}
        for name, ptx_type in self.entry.registers.items():
            key = 0 if ptx_type == "pred" else max(2, size_of(ptx_type))
            by_size.setdefault(key, []).append(name)
        for key, names in by_size.items():
            dtype = np.dtype(np.bool_) if key == 0 else np.dtype(f"u{key}")
            registers = np.empty((len(names), self.lanes), dtype)
            self._files.append(registers)
            self._storage.update(zip(names, registers))

    def poison(self, seed: int) -> None:
        """Fills the registers with values that no kernel should use. Predicates follow the seed."""
        for registers in self._files:
            if registers.dtype == np.bool_:
                registers[...] = bool(seed % 2)
            else:
                registers[...] = _POISON & ((1 << (8 * registers.itemsize)) - 1)

    def set_special(self, name: str, values: np.ndarray | int) -> None:
        """Sets a special register of all lanes, such as %tid.x."""
        row = self._specials.setdefault(name, np.zeros(self.lanes, np.uint32))
        row[...] = values

    def predicate(self, name: str) -> np.ndarray:
        """Returns the row of a predicate register."""
        return self._storage[name]

    def read(self, operand: Operand, ptx_type: str) -> np.ndarray:
        """Returns the row of an operand, in the numpy type of a PTX type. Constants are rows too."""
        if isinstance(operand, Register):
            if operand.is_negated:
                raise PtxError(f"!{operand.name} is not possible here")
            return self._row(operand.name, ptx_type)
        if isinstance(operand, Special):
            if operand.name not in self._specials:
                raise PtxError(f"unknown special register {operand.name}")
            return self._specials[operand.name].view(NUMPY_TYPES[ptx_type])
        key = (operand, ptx_type)
        if key not in self._constants:
            self._constants[key] = self._constant(operand, ptx_type)
        return self._constants[key]

    def write(self, operand: Operand, ptx_type: str) -> np.ndarray:
        """Returns the row of a result. Results may be written to it in place."""
        if operand == Name("_"):
            return np.empty(self.lanes, NUMPY_TYPES[ptx_type])
        if not isinstance(operand, Register):
            raise PtxError(f"{operand} cannot be written")
        return self._row(operand.name, ptx_type)

    def stored_size(self, operand: Operand) -> int:
        """Returns the bytes of a register."""
        return self._storage[operand.name].itemsize if isinstance(operand, Register) else 0

    def stored(self, operand: Operand) -> np.ndarray:
        """Returns the whole register, as an unsigned integer."""
        if not isinstance(operand, Register):
            raise PtxError(f"{operand} is not a register")
        return self._storage[operand.name]

    def read_storage(self, name: str) -> np.ndarray:
        """Returns the whole register by name, as an unsigned integer."""
        if name not in self._storage:
            raise PtxError(f"{name} is not declared")
        return self._storage[name]

    def _row(self, name: str, ptx_type: str) -> np.ndarray:
        key = (name, ptx_type)
        if key not in self._rows:
            storage = self._storage.get(name)
            if storage is None:
                raise PtxError(f"{name} is not declared")
            self._rows[key] = _view(storage, np.dtype(NUMPY_TYPES[ptx_type]), name)
        return self._rows[key]

    def _constant(self, operand: Operand, ptx_type: str) -> np.ndarray:
        if isinstance(operand, Constant):
            value = operand.to_array(ptx_type)
        elif isinstance(operand, Name) and operand.text in self._symbols:
            value = np.array([self._symbols[operand.text]], NUMPY_TYPES[ptx_type])
        else:
            raise PtxError(f"unknown operand {operand}")
        row = np.repeat(value, self.lanes)
        row.flags.writeable = False
        return row

    def symbol(self, name: str) -> int:
        """Returns the address of a shared or local variable, or the offset of a parameter."""
        if name not in self._symbols:
            raise PtxError(f"unknown variable {name}")
        return self._symbols[name]


def _view(storage: np.ndarray, wanted: np.dtype, name: str) -> np.ndarray:
    """Returns a register in another type. A narrower type sees the low bytes."""
    if storage.itemsize == wanted.itemsize:
        return storage.view(wanted)
    if storage.dtype == np.bool_ or wanted == np.bool_ or storage.itemsize < wanted.itemsize:
        raise PtxError(f"{name} has {storage.itemsize} bytes, {wanted} was wanted")
    return storage.view(wanted)[:: storage.itemsize // wanted.itemsize]
