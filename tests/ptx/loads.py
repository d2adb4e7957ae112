# SPDX-License-Identifier: Apache-2.0
"""ld, st and cp.async's addresses: how an instruction reaches memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from ptx.counters import by_warp
from ptx.errors import PtxError, Trap
from ptx.lanes import Lanes
from ptx.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, Memory, check_alignment
from ptx.operands import NUMPY_TYPES, Address, Operand, Vector, size_of
from ptx.parser import Instruction
from ptx.table import Operation, instruction, unknown

if TYPE_CHECKING:
    from ptx.crew import Crew

_SPACES = ("global", "shared", "param", "local", "const")


def space_of(what: Instruction) -> str:
    """Returns the state space, or `generic` if the instruction names none."""
    return next((part for part in what.modifiers if part in _SPACES), "generic")


def address_source(crew: "Crew", operand: Operand) -> Callable[[Lanes], np.ndarray]:
    """Returns a function that returns the addresses of the chosen lanes."""
    if not isinstance(operand, Address):
        raise PtxError(f"{operand} is not an address")
    offset = np.int64(operand.offset)
    if not operand.is_register:
        fixed = np.int64(crew.frame.symbol(operand.base) + operand.offset)
        return lambda lanes: np.full(lanes.count, fixed)
    storage = crew.frame.read_storage(operand.base)
    row = storage.view(np.int64) if storage.itemsize == 8 else storage
    return lambda lanes: lanes.select(row).astype(np.int64) + offset


class Access:
    """Accesses of one instruction: finds the memory and the places, looks for races, and counts the cost."""

    def __init__(self, crew: "Crew", space: str, size: int) -> None:
        if space not in ("global", "shared", "local", "generic"):
            raise PtxError(f"the state space {space} is not implemented")
        self._crew = crew
        self._space = space
        self._size = size

    def load(self, addresses: np.ndarray, lanes: Lanes) -> tuple[Memory, np.ndarray]:
        """Checks, records and counts a read. Returns the memory and the places."""
        return self._access(addresses, lanes, is_load=True)

    def store(self, addresses: np.ndarray, lanes: Lanes) -> tuple[Memory, np.ndarray]:
        """Checks, records and counts a write. Returns the memory and the places."""
        return self._access(addresses, lanes, is_load=False)

    def _access(self, addresses: np.ndarray, lanes: Lanes, is_load: bool) -> tuple[Memory, np.ndarray]:
        crew, launch = self._crew, self._crew.launch
        space, addresses = self._resolve(addresses)
        memory: Memory
        if space == "local":
            return crew.local, crew.local.place(addresses, lanes.index, self._size)
        if space == "shared":
            memory, shadow = launch.shared, launch.shared_shadow
            places = launch.shared.place(addresses, lanes.select(crew.block_slot), self._size)
        else:
            memory, shadow = launch.memory, launch.memory_shadow
            places = launch.memory.place(addresses, self._size)
        touch = shadow.read if is_load else shadow.write
        touch(places, self._size, lanes.select(crew.thread), lanes.select(crew.stamps))
        rows = by_warp(addresses, lanes.index, crew.lanes)
        if space == "shared":
            launch.counters.count_shared(rows, self._size)
        else:
            launch.counters.count_global(rows, self._size, is_load)
        return memory, places

    def _resolve(self, addresses: np.ndarray) -> tuple[str, np.ndarray]:
        """Returns the state space, and the addresses in it. A generic address may be one of a window."""
        if self._space == "generic":
            for space, window in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
                if _is_in_window(addresses, window):
                    return space, addresses - np.int64(window)
            return "global", addresses
        return self._space, addresses


def _is_in_window(addresses: np.ndarray, window: int) -> bool:
    """Returns whether the generic addresses are in a window. Raises Trap if only some are."""
    inside = (addresses >= window) & (addresses < window + (1 << 32))
    if inside.any() and not inside.all():
        raise Trap("out of bounds", "lanes of one generic access are in different state spaces")
    return bool(inside.all())


def elements(operand: Operand) -> tuple[Operand, ...]:
    """Returns the elements of a vector, or the operand itself."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


@instruction("ld", "ldu")
def build_load(crew: "Crew", what: Instruction) -> Operation:
    """ld of one element or of a vector."""
    space = space_of(what)
    if space == "param" or (space == "generic" and _has_parameter_addresses(crew)):
        return _build_parameter_load(crew, what)
    return _build_memory_load(crew, what)


def _build_memory_load(crew: "Crew", what: Instruction) -> Operation:
    """ld from device or shared memory."""
    size = size_of(what.type)
    kind = np.dtype(NUMPY_TYPES[what.type])
    targets = [_load_target(crew, operand, what.type) for operand in elements(what.operands[0])]
    address = address_source(crew, what.operands[1])
    access = Access(crew, space_of(what), size * len(targets))

    def run(lanes: Lanes) -> None:
        memory, places = access.load(address(lanes), lanes)
        first = places // size
        values = memory.view(kind)
        for number, (row, extended) in enumerate(targets):
            lanes.put_selected(row, values[first + number].astype(extended))

    return run


def _has_parameter_addresses(crew: "Crew") -> bool:
    """Returns whether the kernel takes generic addresses of parameters."""
    return any(what.opcode == "cvta" and "param" in what.modifiers for what in crew.entry.instructions)


def _load_target(crew: "Crew", operand: Operand, ptx_type: str) -> tuple[np.ndarray, np.dtype]:
    """Returns the register and the type to which an element is extended if the register is wider."""
    kind = np.dtype(NUMPY_TYPES[ptx_type])
    stored_size = crew.frame.stored_size(operand)
    if stored_size in (0, kind.itemsize):
        return crew.frame.write(operand, ptx_type), kind
    wide = np.dtype(f"{'i' if kind.kind == 'i' else 'u'}{stored_size}")
    return crew.frame.stored(operand).view(wide), wide


def _build_parameter_load(crew: "Crew", what: Instruction) -> Operation:
    """ld.param, and a generic load whose address is that of a parameter."""
    address = what.operands[1]
    if not isinstance(address, Address):
        raise unknown(what)
    size = size_of(what.type)
    kind = np.dtype(NUMPY_TYPES[what.type])
    targets = [_load_target(crew, operand, what.type) for operand in elements(what.operands[0])]
    storage = np.frombuffer(crew.launch.parameters.ljust(16, b"\0"), np.uint8)
    if not address.is_register:
        offset = crew.entry.parameters[address.base].offset + address.offset
        fixed = [storage[offset + i * size :][:size].copy().view(kind)[0] for i in range(len(targets))]

        def run(lanes: Lanes) -> None:
            for (row, extended), value in zip(targets, fixed):
                lanes.put(row, value.astype(extended))

        return run
    return _build_computed_parameter_load(crew, what, targets, storage)


def _build_computed_parameter_load(
    crew: "Crew", what: Instruction, targets: list[tuple[np.ndarray, np.dtype]], storage: np.ndarray
) -> Operation:
    """A load whose register holds an address of the parameter space, or a generic address that may be one."""
    size = size_of(what.type)
    kind = np.dtype(NUMPY_TYPES[what.type])
    source = address_source(crew, what.operands[1])
    is_generic = space_of(what) == "generic"
    load = _build_memory_load(crew, what) if is_generic else None

    def run(lanes: Lanes) -> None:
        offsets = source(lanes)
        if load is not None:
            if not _is_in_window(offsets, PARAMETER_WINDOW):
                load(lanes)
                return
            offsets = offsets - np.int64(PARAMETER_WINDOW)
        check_alignment(offsets, size, "parameter")
        if (offsets < 0).any() or (offsets + size * len(targets) > len(crew.launch.parameters)).any():
            raise Trap("out of bounds", f"parameter space + {int(offsets[0])}")
        for number, (row, extended) in enumerate(targets):
            places = (offsets + number * size)[:, None] + np.arange(size)
            lanes.put_selected(row, storage[places].view(kind)[:, 0].astype(extended))

    return run


@instruction("st")
def build_store(crew: "Crew", what: Instruction) -> Operation:
    """st of one element or of a vector."""
    size = size_of(what.type)
    kind = np.dtype(NUMPY_TYPES[what.type])
    sources = [crew.frame.read(operand, what.type) for operand in elements(what.operands[1])]
    address = address_source(crew, what.operands[0])
    access = Access(crew, space_of(what), size * len(sources))

    def run(lanes: Lanes) -> None:
        memory, places = access.store(address(lanes), lanes)
        first = places // size
        values = memory.view(kind)
        for number, row in enumerate(sources):
            values[first + number] = lanes.select(row)

    return run
