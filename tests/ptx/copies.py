# SPDX-License-Identifier: Apache-2.0
"""cp.async: copies from global to shared memory that are visible only after a wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptx.counters import by_warp
from ptx.errors import Trap
from ptx.lanes import Lanes
from ptx.loads import address_source
from ptx.operands import Constant
from ptx.parser import Instruction
from ptx.table import Operation, instruction, unknown

if TYPE_CHECKING:
    from ptx.crew import Crew

_POISON = np.uint8(0xFD)


@dataclass
class _Copy:
    """Copies that one instruction issued: the lanes, their groups, the targets' places, and the bytes."""

    lanes: np.ndarray
    groups: np.ndarray
    places: np.ndarray
    values: np.ndarray


class AsyncCopies:
    """The copies in flight of a crew's lanes. A target holds poison until the lane waits for the copy."""

    def __init__(self, crew: "Crew") -> None:
        self._crew = crew
        self._open_group = np.zeros(crew.lanes, np.int64)
        self._copies: list[_Copy] = []

    def issue(self, lanes: Lanes, places: np.ndarray, values: np.ndarray) -> None:
        """Starts copies of values [lanes, bytes] to places of shared memory."""
        crew, launch = self._crew, self._crew.launch
        size = values.shape[1]
        launch.shared_shadow.begin_copy(places, size, lanes.select(crew.thread), lanes.select(crew.stamps))
        launch.shared.bytes[places[:, None] + np.arange(size)] = _POISON
        self._copies.append(_Copy(lanes.index, self._open_group[lanes.index], places, values))

    def commit(self, lanes: Lanes) -> None:
        """Closes the current group of each lane."""
        self._open_group[lanes.index] += 1

    def wait(self, lanes: Lanes, pending: int) -> None:
        """Finishes all closed groups of the lanes but the newest `pending`."""
        rest: list[_Copy] = []
        for copy in self._copies:
            is_done = lanes.mask[copy.lanes] & (copy.groups < self._open_group[copy.lanes] - pending)
            if is_done.any():
                self._finish(_select(copy, is_done))
            if not is_done.all():
                rest.append(_select(copy, ~is_done))
        self._copies = rest

    def wait_all(self, lanes: Lanes) -> None:
        """Finishes all copies of the lanes, also those of the group that is still open."""
        self.commit(lanes)
        self.wait(lanes, 0)

    def check_finished(self, exiting: np.ndarray) -> None:
        """Raises Trap if an exiting lane has not waited for its copies."""
        for copy in self._copies:
            if exiting[copy.lanes].any():
                lane = int(copy.lanes[exiting[copy.lanes]][0])
                thread = int(self._crew.thread_in_block[lane])
                raise Trap(
                    "cp.async", f"thread {thread} of block {int(self._crew.block[lane])} exits without a wait"
                )

    def _finish(self, copy: _Copy) -> None:
        crew, launch = self._crew, self._crew.launch
        size = copy.values.shape[1]
        launch.shared_shadow.finish_copy(copy.places, size, crew.thread[copy.lanes], crew.stamps[copy.lanes])
        launch.shared.bytes[copy.places[:, None] + np.arange(size)] = copy.values


def _select(copy: _Copy, chosen: np.ndarray) -> _Copy:
    return _Copy(copy.lanes[chosen], copy.groups[chosen], copy.places[chosen], copy.values[chosen])


@instruction("cp")
def build_copy(crew: "Crew", what: Instruction) -> Operation:
    """cp.async and what closes and awaits its groups."""
    if what.modifiers[0] != "async" or "bulk" in what.modifiers:
        raise unknown(what)
    copies = crew.copies
    if "commit_group" in what.modifiers:
        return copies.commit
    if "wait_all" in what.modifiers:
        return copies.wait_all
    if "wait_group" in what.modifiers:
        (pending,) = what.operands
        if not isinstance(pending, Constant):
            raise unknown(what)
        return lambda lanes: copies.wait(lanes, pending.value)
    return _build_issue(crew, what)


def _build_issue(crew: "Crew", what: Instruction) -> Operation:
    """cp.async [shared], [global], bytes {, bytes to read}. If no byte is read, the target becomes zero."""
    size = what.operands[2]
    if not isinstance(size, Constant) or size.value not in (4, 8, 16):
        raise unknown(what)
    to, of = address_source(crew, what.operands[0]), address_source(crew, what.operands[1])
    wanted = crew.frame.read(what.operands[3], "u32") if len(what.operands) > 3 else None

    def run(lanes: Lanes) -> None:
        launch = crew.launch
        places = launch.shared.place(to(lanes), lanes.select(crew.block_slot), size.value)
        values = np.zeros((lanes.count, size.value), np.uint8)
        counts = np.full(lanes.count, size.value) if wanted is None else lanes.select(wanted).astype(np.int64)
        if ((counts != 0) & (counts != size.value)).any():
            raise Trap("cp.async", "a copy reads a part of its bytes, which is not implemented")
        reads = counts == size.value
        if reads.any():
            values[reads] = _read(crew, of(lanes), reads, lanes, size.value)
        crew.copies.issue(lanes, places, values)

    return run


def _read(crew: "Crew", addresses: np.ndarray, reads: np.ndarray, lanes: Lanes, size: int) -> np.ndarray:
    """Returns the bytes of global memory that some of the lanes read."""
    launch = crew.launch
    chosen = lanes.index[reads]
    places = launch.memory.place(addresses[reads], size)
    launch.memory_shadow.read(places, size, crew.thread[chosen], crew.stamps[chosen])
    launch.counters.count_global(by_warp(addresses[reads], chosen, crew.lanes), size, is_load=True)
    return launch.memory.bytes[places[:, None] + np.arange(size)]
