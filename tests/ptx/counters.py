# SPDX-License-Identifier: Apache-2.0
"""Counts what memory accesses cost: passes over the banks of shared memory, sectors of global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import numpy as np

from ptx.lanes import WARP

_BANKS = 32
_BANK_BYTES = 4
_BYTES_PER_PASS = 128
_SECTOR_BYTES = 32
# Stands for lanes that do not take part. It is larger than every address.
_ABSENT = np.int64(1) << np.int64(62)


@dataclass
class Counters:
    """The counts of a launch. `ideal` is the least that an access of its width can cost."""

    instructions: int = 0
    shared_passes: int = 0
    shared_ideal: int = 0
    matrix_passes: int = 0
    matrix_ideal: int = 0
    load_sectors: int = 0
    load_ideal: int = 0
    store_sectors: int = 0
    store_ideal: int = 0

    def add(self, other: "Counters") -> None:
        """Adds the counts of another launch."""
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def count_shared(self, addresses: np.ndarray, size: int, is_matrix: bool = False) -> None:
        """Counts an access of [warps, 32] shared addresses, each of `size` bytes. Absent lanes have none (see
        by_warp).

        A pass serves 128 bytes: all lanes with 4 bytes, half a warp with 8, a quarter with 16.
        """
        passes, ideal = _remember(_shared_costs, addresses, size, _BANK_BYTES)
        if is_matrix:
            self.matrix_passes += passes
            self.matrix_ideal += ideal
        else:
            self.shared_passes += passes
            self.shared_ideal += ideal

    def count_global(self, addresses: np.ndarray, size: int, is_load: bool) -> None:
        """Counts an access of [warps, 32] global addresses, each of `size` bytes."""
        sectors, ideal = _remember(_global_costs, addresses, size, _SECTOR_BYTES)
        if is_load:
            self.load_sectors += sectors
            self.load_ideal += ideal
        else:
            self.store_sectors += sectors
            self.store_ideal += ideal


_known_costs: dict[tuple[object, int, bytes], tuple[int, int]] = {}
_MOST_KNOWN_COSTS = 20_000


def _remember(
    function: Callable[[np.ndarray, int], tuple[int, int]], addresses: np.ndarray, size: int, unit: int
) -> tuple[int, int]:
    """Returns a function's result for addresses. It stays the same if all of a row move by `unit` bytes."""
    bases = addresses.min(axis=1, keepdims=True) // unit * unit
    moved = np.where(addresses == _ABSENT, _ABSENT, addresses - bases)
    key = (function, size, moved.tobytes())
    if key not in _known_costs:
        if len(_known_costs) > _MOST_KNOWN_COSTS:
            _known_costs.clear()
        _known_costs[key] = function(moved, size)
    return _known_costs[key]


def _shared_costs(addresses: np.ndarray, size: int) -> tuple[int, int]:
    """Returns the passes over the banks, and the least possible."""
    groups = addresses.reshape(-1, min(WARP, _BYTES_PER_PASS // size))
    groups = groups[(groups != _ABSENT).any(axis=1)]
    return int(bank_passes(groups, size).sum()), len(groups)


def _global_costs(addresses: np.ndarray, size: int) -> tuple[int, int]:
    """Returns the sectors, and the least possible for the bytes that the lanes want."""
    sectors = int(count_distinct(addresses // _SECTOR_BYTES, _ABSENT // _SECTOR_BYTES).sum())
    wanted = count_distinct(addresses, _ABSENT) * size
    return sectors, int(((wanted + _SECTOR_BYTES - 1) // _SECTOR_BYTES).sum())


def by_warp(addresses: np.ndarray, lanes: np.ndarray, lane_count: int) -> np.ndarray:
    """Returns the addresses of some lanes as [warps, 32]. The other lanes of these warps are absent."""
    if len(lanes) == lane_count:
        return addresses.reshape(-1, WARP)
    warps = np.unique(lanes // WARP)
    result = np.full((len(warps), WARP), _ABSENT)
    result[np.searchsorted(warps, lanes // WARP), lanes % WARP] = addresses
    return result


def count_distinct(values: np.ndarray, absent: np.int64) -> np.ndarray:
    """Returns the number of different values in each row, without absent ones."""
    ordered = np.sort(values, axis=1)
    steps = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
    return steps + (ordered[:, -1] != absent)


def bank_passes(addresses: np.ndarray, size: int) -> np.ndarray:
    """Returns the passes of each row: the largest number of different words in one bank."""
    words_per_lane = max(1, size // _BANK_BYTES)
    words = (addresses // _BANK_BYTES)[:, :, None] + np.arange(words_per_lane)
    words = np.where((addresses == _ABSENT)[:, :, None], -1, words).reshape(len(addresses), -1)
    ordered = np.sort(words, axis=1)
    is_new = np.ones(ordered.shape, np.bool_)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    is_new &= ordered >= 0
    rows = np.repeat(np.arange(len(addresses)), is_new.sum(axis=1))
    slots = rows * _BANKS + ordered[is_new] % _BANKS
    return np.bincount(slots, minlength=len(addresses) * _BANKS).reshape(-1, _BANKS).max(axis=1)
