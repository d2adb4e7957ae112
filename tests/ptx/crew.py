# SPDX-License-Identifier: Apache-2.0
"""A crew: warps of one or several blocks that execute together as long as they are at the same instruction.

Its lanes form fragments. A fragment is a set of lanes at one instruction. The fragment at the lowest
instruction runs. Where it reaches another fragment, the two become one. A branch may split a fragment. So the
lanes of a warp meet again at the earliest place, which is one of the orders that PTX allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Iterator

import numpy as np

import ptx.instructions  # noqa: F401  enters all instructions into the table
from ptx.copies import AsyncCopies
from ptx.errors import PtxError, Trap
from ptx.frame import Frame
from ptx.lanes import WARP, Lanes
from ptx.memory import LocalMemory
from ptx.operands import Constant, Name, Operand, Register
from ptx.parser import Instruction
from ptx.races import after_barrier, thread_code
from ptx.table import Operation, build

if TYPE_CHECKING:
    from ptx.launch import Launch

# A kernel that makes more branches than this is in an endless loop.
_MOST_BRANCHES = 3_000_000


class Crew:
    """Some warps of a cohort of blocks, with their registers."""

    def __init__(self, launch: "Launch", warps: list[tuple[int, int, int]]) -> None:
        """Makes a crew of warps, each given by its block's slot in the cohort, its block and its number."""
        self.launch = launch
        self.entry = launch.entry
        slots, blocks, numbers = (np.repeat(np.array(column, np.int64), WARP) for column in zip(*warps))
        self.lanes = len(slots)
        self.lane_in_warp = np.arange(self.lanes) % WARP
        self.thread_in_block = numbers * WARP + self.lane_in_warp
        self.block = blocks
        self.block_slot = slots
        self.thread = thread_code(blocks, self.thread_in_block)
        self.stamps = np.zeros(self.lanes, np.int64)
        self.frame = Frame(self.entry, self.lanes, launch.symbols)
        self.frame.poison(launch.seed)
        self._set_specials()
        self.alive = self.thread_in_block < launch.shape.threads
        self.alive_count = int(self.alive.sum())
        self.copies = AsyncCopies(self)
        self.local = LocalMemory(launch.local_bytes, self.lanes)
        self._code: list[Operation | None] = [None] * len(self.entry.instructions)
        self._built: set[tuple[int, int]] = set()
        self._next_control = _next_control(self.entry.instructions)
        self._fragments: list[tuple[int, Lanes]] = [(0, self._lanes(self.alive.copy()))]
        self._waiting: list[tuple[int, Lanes]] = []
        self._branches = 0

    def _set_specials(self) -> None:
        shape = self.launch.shape
        set_special = self.frame.set_special
        set_special("%laneid", self.lane_in_warp)
        rest_of_thread, rest_of_block = self.thread_in_block, self.block
        for axis, name in enumerate("xyz"):
            set_special(f"%ntid.{name}", shape.block[axis])
            set_special(f"%nctaid.{name}", shape.grid[axis])
            set_special(f"%tid.{name}", rest_of_thread % shape.block[axis] if axis < 2 else rest_of_thread)
            set_special(f"%ctaid.{name}", rest_of_block % shape.grid[axis])
            rest_of_thread = rest_of_thread // shape.block[axis]
            rest_of_block = rest_of_block // shape.grid[axis]

    def _lanes(self, mask: np.ndarray) -> Lanes:
        return Lanes(mask, self.alive_count)

    # What instructions use to look up their operands.

    def row(self, what: Instruction, place: int) -> np.ndarray:
        """Returns the row of an operand in the instruction's type. The first operand is the result."""
        operand = what.operands[place]
        return self.frame.write(operand, what.type) if place == 0 else self.frame.read(operand, what.type)

    def predicate_source(self, operand: Operand) -> Callable[[], np.ndarray]:
        """Returns a function that returns the values of %p or !%p."""
        if not isinstance(operand, Register):
            raise PtxError(f"{operand} is not a predicate")
        row = self.frame.predicate(operand.name)
        return (lambda: ~row) if operand.is_negated else (lambda: row)

    def note_approximate(self, what: Instruction) -> None:
        """Notes that the kernel uses an instruction without specified bits."""
        self.launch.approximate.add(".".join((what.opcode, *what.modifiers)))

    # Execution

    @property
    def has_work(self) -> bool:
        """Returns whether a lane of the crew has not exited."""
        return bool(self._fragments)

    def run(self) -> None:
        """Runs until every lane waits at a barrier of its block or has exited."""
        while self._fragments:
            at = min(range(len(self._fragments)), key=lambda i: self._fragments[i][0])
            place, lanes = self._fragments.pop(at)
            limit = min((other for other, _ in self._fragments), default=len(self._code))
            lanes.is_everyone = lanes.count == self.alive_count
            if lanes.count:
                self._advance(place, lanes, limit)

    def _advance(self, place: int, lanes: Lanes, limit: int) -> None:
        """Runs a fragment until it meets another, waits, splits or ends."""
        next_control = self._next_control
        warps = len(lanes.warps)
        while True:
            stop = min(next_control[place], limit)
            self._run_straight(place, stop, lanes)
            self.launch.counters.instructions += (stop - place + 1) * warps
            if stop >= limit:
                self._add_fragment(stop, lanes)
                return
            following = self._control(stop, lanes)
            if following is None:
                return
            place = following
            if place >= limit:
                self._add_fragment(place, lanes)
                return

    def _run_straight(self, place: int, stop: int, lanes: Lanes) -> None:
        at = place
        try:
            if (place, stop) not in self._built:
                self._build(place, stop)
            for at, operation in enumerate(self._code[place:stop], place):
                operation(lanes)  # type: ignore[misc]
        except Trap as trap:
            raise Trap(
                trap.kind, f"{str(trap).partition(': ')[2]}, at instruction {at}: {self._text(at)}"
            ) from trap
        except (PtxError, IndexError, ValueError) as error:
            raise PtxError(f"{error}, at instruction {at}: {self._text(at)}") from error

    def _text(self, at: int) -> str:
        return self.entry.instructions[at].text

    def _build(self, place: int, stop: int) -> None:
        """Looks up the operands of instructions that are executed for the first time."""
        for at in range(place, stop):
            if self._code[at] is None:
                self._code[at] = build(self, self.entry.instructions[at])
        self._built.add((place, stop))

    def _add_fragment(self, place: int, lanes: Lanes) -> None:
        for at, (other_place, other) in enumerate(self._fragments):
            if other_place == place:
                self._fragments[at] = (place, self._lanes(other.mask | lanes.mask))
                return
        self._fragments.append((place, lanes))

    # Control flow

    def _control(self, at: int, lanes: Lanes) -> int | None:
        """Executes a branch, exit or barrier. Returns where all lanes continue, or None if they do not."""
        what = self.entry.instructions[at]
        if what.is_barrier:
            self._wait(at, what, lanes)
            return None
        taken = self._taken(what, lanes)
        self._branches += 1
        if self._branches > _MOST_BRANCHES:
            raise Trap(
                "endless loop", f"more than {_MOST_BRANCHES} branches, at instruction {at}: {what.text}"
            )
        if what.opcode == "bra":
            return self._branch(at, what, lanes, taken)
        return self._exit(at, lanes, taken)

    def _taken(self, what: Instruction, lanes: Lanes) -> np.ndarray:
        if what.guard is None:
            return lanes.mask
        predicate = self.frame.predicate(what.guard.register)
        return lanes.mask & ~predicate if what.guard.is_negated else lanes.mask & predicate

    def _branch(self, at: int, what: Instruction, lanes: Lanes, taken: np.ndarray) -> int | None:
        label = what.operands[0]
        if not isinstance(label, Name) or label.text not in self.entry.labels:
            raise PtxError(f"unknown label in {what.text!r}")
        target = self.entry.labels[label.text]
        count = int(np.count_nonzero(taken))
        if count == lanes.count:
            return target
        if count == 0:
            return at + 1
        self._add_fragment(target, self._lanes(taken))
        self._add_fragment(at + 1, self._lanes(lanes.mask & ~taken))
        return None

    def _exit(self, at: int, lanes: Lanes, taken: np.ndarray) -> int | None:
        self.copies.check_finished(taken)
        rest = lanes.mask & ~taken
        self.alive &= ~taken
        self.alive_count = int(self.alive.sum())
        if rest.any():
            self._add_fragment(at + 1, self._lanes(rest))
        return None

    # Barriers

    def _wait(self, at: int, what: Instruction, lanes: Lanes) -> None:
        if what.guard is not None or what.operands not in ((Constant(0),), ()) or "red" in what.modifiers:
            raise PtxError(f"unknown form of barrier {what.text!r}")
        present = lanes.by_warp[lanes.warps]
        expected = self.alive.reshape(-1, WARP)[lanes.warps]
        if not (present == expected).all():
            warp = int(lanes.warps[np.flatnonzero((present != expected).any(axis=1))[0]])
            thread = int(self.thread_in_block[warp * WARP])
            raise Trap(
                "divergent barrier",
                f"only some lanes of the warp of thread {thread} of block {int(self.block[warp * WARP])} "
                f"arrive, at instruction {at}: {what.text}",
            )
        self._waiting.append((at + 1, lanes))

    def waits(self) -> Iterator[tuple[int, int, str]]:
        """Returns the blocks whose warps wait, with the place and the text of the barrier."""
        for place, lanes in self._waiting:
            for block in np.unique(self.block[lanes.index]):
                yield int(block), place - 1, self._text(place - 1)

    def pass_barrier(self) -> None:
        """Lets all waiting lanes continue. It is called when every crew of the cohort waits."""
        for place, lanes in self._waiting:
            self.stamps[lanes.mask] = after_barrier(self.stamps[lanes.mask])
            self._add_fragment(place, lanes)
        self._waiting = []


def _next_control(instructions: list[Instruction]) -> list[int]:
    """Returns for each instruction the next one at or after it that the crew executes itself."""
    result = [0] * len(instructions)
    following = len(instructions)
    for at in range(len(instructions) - 1, -1, -1):
        if instructions[at].is_control:
            following = at
        result[at] = following
    return result
