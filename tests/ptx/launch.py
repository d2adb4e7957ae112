# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel over a grid: cohorts of blocks, whose warps are dealt to crews, from barrier to barrier."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from ptx.counters import Counters
from ptx.crew import Crew
from ptx.errors import Trap
from ptx.lanes import WARP
from ptx.memory import LOCAL_BASE, SHARED_BASE, GlobalMemory, SharedMemory
from ptx.operands import size_of
from ptx.parser import Entry, Instruction, Variable
from ptx.races import Shadow
from ptx.tensor_core import ARCHITECTURES, Architecture

# Lanes that are computed at once. More lanes make numpy's calls cheaper, until they leave the processor's
# cache.
_LANES_PER_COHORT = 4096


@dataclass(frozen=True)
class Shape:
    """The shape of a launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int = 0

    @property
    def blocks(self) -> int:
        """Returns the number of blocks."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Returns the threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Returns the warps of a block."""
        return (self.threads + WARP - 1) // WARP


@dataclass
class Launch:
    """A launch of a kernel. Seed 0 runs all warps together, another one deals them to crews at random."""

    entry: Entry
    shape: Shape
    parameters: bytes
    memory: GlobalMemory
    architecture: Architecture = ARCHITECTURES["sm_90a"]
    seed: int = 0
    counters: Counters = field(default_factory=Counters)
    approximate: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if len(self.parameters) != self.entry.parameter_bytes:
            raise Trap(
                "parameters",
                f"{len(self.parameters)} bytes are given, {self.entry.parameter_bytes} are declared",
            )
        self.random = random.Random(self.seed)
        self.symbols, shared_bytes = _place_variables(self.entry.shared, SHARED_BASE)
        self.shared_bytes = shared_bytes + self.shape.dynamic_shared_bytes
        local_symbols, self.local_bytes = _place_variables(self.entry.local, LOCAL_BASE)
        self.symbols |= local_symbols
        # A parameter's address is its offset in the parameter space.
        self.symbols |= {name: parameter.offset for name, parameter in self.entry.parameters.items()}
        self.memory_shadow = Shadow(
            self.memory.size, _narrowest(self.entry, "global"), self.memory.describe_place
        )
        self.shared = SharedMemory(0, 0)
        self.shared_shadow = self._new_shared_shadow()

    def _new_shared_shadow(self) -> Shadow:
        return Shadow(self.shared.size, _narrowest(self.entry, "shared"), self.shared.describe_place)

    def run(self) -> None:
        """Runs all blocks."""
        order = list(range(self.shape.blocks))
        if self.seed:
            self.random.shuffle(order)
        size = max(1, _LANES_PER_COHORT // (self.shape.warps * WARP))
        with np.errstate(all="ignore"):
            for first in range(0, len(order), size):
                self._run_cohort(order[first : first + size])

    def _run_cohort(self, blocks: list[int]) -> None:
        """Runs blocks from barrier to barrier. In between each crew runs until all of its warps wait."""
        self.shared = SharedMemory(self.shared_bytes, len(blocks))
        self.shared_shadow = self._new_shared_shadow()
        crews = self._deal(blocks)
        while crews:
            if self.seed:
                self.random.shuffle(crews)
            for crew in crews:
                crew.run()
            _check_barriers(crews)
            for crew in crews:
                crew.pass_barrier()
            crews = [crew for crew in crews if crew.has_work]

    def _deal(self, blocks: list[int]) -> list[Crew]:
        """Deals the blocks' warps to crews: to one if the seed is 0, else to two or three."""
        warps = [(slot, block, warp) for slot, block in enumerate(blocks) for warp in range(self.shape.warps)]
        if not self.seed:
            return [Crew(self, warps)]
        self.random.shuffle(warps)
        count = min(len(warps), self.random.choice((2, 3)))
        cuts = sorted(self.random.sample(range(1, len(warps)), count - 1)) if count > 1 else []
        return [Crew(self, warps[a:b]) for a, b in zip([0, *cuts], [*cuts, len(warps)])]


def _check_barriers(crews: list[Crew]) -> None:
    """Raises Trap if warps of one block wait at different barriers."""
    places: dict[int, tuple[int, str]] = {}
    for crew in crews:
        for block, place, text in crew.waits():
            known = places.setdefault(block, (place, text))
            if known[0] != place:
                raise Trap(
                    "divergent barrier",
                    f"warps of block {block} wait at instructions {known[0]} and {place}: {text}",
                )


def _place_variables(variables: list[Variable], base: int) -> tuple[dict[str, int], int]:
    """Returns the addresses of variables, those without a length last, and the bytes of all."""
    symbols: dict[str, int] = {}
    end = base
    for variable in sorted(variables, key=lambda variable: variable.bytes == 0):
        end = (end + variable.alignment - 1) // variable.alignment * variable.alignment
        symbols[variable.name] = end
        end += variable.bytes
    return symbols, end - base


def _narrowest(entry: Entry, space: str) -> int:
    """Returns the bytes of the kernel's narrowest access to a space, at most 4."""
    sizes = [4]
    for what in entry.instructions:
        if what.opcode in ("ld", "st", "red", "atom") and _may_access(what, space):
            sizes.append(size_of(what.type))
    return min(sizes)


def _may_access(what: Instruction, space: str) -> bool:
    return space in what.modifiers or not {"global", "shared", "param", "local"} & set(what.modifiers)
