# SPDX-License-Identifier: Apache-2.0
"""Sets of lanes that execute an instruction together."""

from __future__ import annotations

from functools import cached_property

import numpy as np

WARP = 32


class Lanes:
    """A set of lanes of a crew, as a mask.

    `is_everyone` says that no other lane of the crew is alive. Then registers may be written without the
    mask, because the registers of a lane that has exited are never read.
    """

    def __init__(self, mask: np.ndarray, alive_count: int) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self.is_everyone = self.count == alive_count

    @cached_property
    def index(self) -> np.ndarray:
        """Returns the numbers of the lanes in the crew."""
        return np.flatnonzero(self.mask)

    @property
    def has_all_lanes(self) -> bool:
        """Returns whether each lane of the crew is in the set, so that no selection is needed."""
        return self.count == len(self.mask)

    @cached_property
    def by_warp(self) -> np.ndarray:
        """Returns the mask as [warps, 32]."""
        return self.mask.reshape(-1, WARP)

    @cached_property
    def warps(self) -> np.ndarray:
        """Returns the numbers of the warps that have a lane in the set."""
        return np.flatnonzero(self.by_warp.any(axis=1))

    @cached_property
    def has_whole_warps(self) -> bool:
        """Returns whether each warp has all 32 lanes in the set or none."""
        return self.count == WARP * len(self.warps)

    def select(self, values: np.ndarray) -> np.ndarray:
        """Returns the values of the set's lanes. The result may share memory with `values`."""
        return values if self.has_all_lanes else values[self.index]

    def put(self, target: np.ndarray, values: np.ndarray) -> None:
        """Writes values of all lanes into a register, for the lanes of the set."""
        if self.is_everyone:
            target[...] = values
        else:
            np.copyto(target, values, where=self.mask)

    def put_selected(self, target: np.ndarray, values: np.ndarray) -> None:
        """Writes values of the set's lanes alone, as select() returns them."""
        if self.has_all_lanes:
            target[...] = values
        else:
            target[self.index] = values

    def where(self, predicate: np.ndarray, is_negated: bool, alive_count: int) -> "Lanes":
        """Returns the lanes of the set whose predicate holds."""
        holds = ~predicate if is_negated else predicate
        return Lanes(self.mask & holds, alive_count)
