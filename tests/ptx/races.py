# SPDX-License-Identifier: Apache-2.0
"""Finds races: two accesses to the same bytes, one of them a write, that no barrier orders.

A thread's code holds its block and its number in the block, so that shifts give its warp and its block.
Barriers of a block order all its threads, __syncwarp orders a warp's lanes, and nothing orders two blocks. So
the order of two accesses follows from the threads and from two clocks: barriers passed by the block and
__syncwarps passed by the warp. A stamp holds both. The result does not depend on the order in which warps
happened to run.
"""

from __future__ import annotations

from typing import Callable

import numpy as np

from ptx.errors import Trap

_SYNCWARP_BITS = 20
_THREAD_BITS = 10
_LANE_BITS = 5
_NOBODY = -1


def thread_code(block: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """Returns the codes of threads, each given by its block and its number in the block (at most 1023)."""
    return (block << np.int64(_THREAD_BITS)) | thread


def after_barrier(stamps: np.ndarray) -> np.ndarray:
    """Returns the stamps after a barrier of the block. A __syncwarp adds 1 to a stamp."""
    return ((stamps >> np.int64(_SYNCWARP_BITS)) + 1) << np.int64(_SYNCWARP_BITS)


class Shadow:
    """The last accesses to each granule of a memory.

    A granule has the size of the kernel's narrowest access to this memory, so no access covers a part of one.
    For readers only one is stored, with the relation between all of them since the last write: 0 one thread,
    1 one warp, 2 one block, 3 several blocks.
    """

    def __init__(self, size: int, granule: int, describe: Callable[[int], str]) -> None:
        count = size // granule + 1
        self.granule = granule
        self._describe = describe
        self._writer = np.full(count, _NOBODY, np.int64)
        self._write_stamp = np.zeros(count, np.int64)
        self._reader = np.full(count, _NOBODY, np.int64)
        self._read_stamp = np.zeros(count, np.int64)
        self._readers = np.zeros(count, np.int8)
        self._in_flight = np.zeros(count, np.bool_)
        self._has_copies = False

    def granules(self, places: np.ndarray, size: int) -> np.ndarray:
        """Returns the granules of accesses of `size` bytes, [lanes, granules]."""
        count = size // self.granule
        return (places // self.granule)[:, None] + np.arange(count)

    def read(self, places: np.ndarray, size: int, threads: np.ndarray, stamps: np.ndarray) -> None:
        """Checks and records a read of each thread."""
        at = self.granules(places, size)
        thread, stamp = threads[:, None], stamps[:, None]
        self._check_copies(at, thread, "read")
        self._check_writers(at, thread, stamp, "read")
        self._record_read(at, thread, stamp)

    def write(self, places: np.ndarray, size: int, threads: np.ndarray, stamps: np.ndarray) -> None:
        """Checks and records a write of each thread."""
        at = self.granules(places, size)
        thread, stamp = threads[:, None], stamps[:, None]
        self._check_copies(at, thread, "write")
        self._check_writers(at, thread, stamp, "write")
        self._check_readers(at, thread, stamp)
        self._record_write(at, thread, stamp)

    def begin_copy(self, places: np.ndarray, size: int, threads: np.ndarray, stamps: np.ndarray) -> None:
        """Records the start of a cp.async: until finish_copy any access to its target is a race."""
        self.write(places, size, threads, stamps)
        self._in_flight[self.granules(places, size)] = True
        self._has_copies = True

    def finish_copy(self, places: np.ndarray, size: int, threads: np.ndarray, stamps: np.ndarray) -> None:
        """Records that the issuing thread has waited. The bytes count as written by it now."""
        at = self.granules(places, size)
        self._in_flight[at] = False
        self._record_write(at, threads[:, None], stamps[:, None])

    @staticmethod
    def _relation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Returns 0 for the same thread, 1 for the same warp, 2 for the same block, else 3."""
        different = one ^ other
        result = (different != 0).astype(np.int8)
        result += different >= 1 << _LANE_BITS
        result += different >= 1 << _THREAD_BITS
        return result

    @staticmethod
    def _is_ordered(relation: np.ndarray, then: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Returns whether an access at stamp `then` is before one at stamp `now`."""
        by_syncwarp = (relation <= 1) & (then < now)
        by_barrier = (relation == 2) & (then >> _SYNCWARP_BITS < now >> _SYNCWARP_BITS)
        return (relation == 0) | by_syncwarp | by_barrier

    def _check_copies(self, at: np.ndarray, thread: np.ndarray, what: str) -> None:
        if self._has_copies and self._in_flight[at].any():
            bad = np.argwhere(self._in_flight[at])[0]
            self._report(
                at,
                thread,
                bad,
                f"{what} of a cp.async's target that was not waited for, issued",
                self._writer,
            )

    def _check_writers(self, at: np.ndarray, thread: np.ndarray, stamp: np.ndarray, what: str) -> None:
        writer = self._writer[at]
        others = (writer != _NOBODY) & (writer != thread)
        if not others.any():
            return
        relation = self._relation(writer, thread)
        bad = others & ~self._is_ordered(relation, self._write_stamp[at], stamp)
        if bad.any():
            self._report(
                at, thread, np.argwhere(bad)[0], f"{what} is not ordered with the write", self._writer
            )

    def _check_readers(self, at: np.ndarray, thread: np.ndarray, stamp: np.ndarray) -> None:
        reader = self._reader[at]
        others = (reader != _NOBODY) & ((reader != thread) | (self._readers[at] > 0))
        if not others.any():
            return
        relation = np.maximum(self._relation(reader, thread), self._readers[at])
        bad = others & ~self._is_ordered(relation, self._read_stamp[at], stamp)
        if bad.any():
            self._report(at, thread, np.argwhere(bad)[0], "write is not ordered with the read", self._reader)

    def _record_read(self, at: np.ndarray, thread: np.ndarray, stamp: np.ndarray) -> None:
        reader = self._reader[at]
        if (reader == thread).all() and (self._read_stamp[at] == stamp).all() and not self._readers[at].any():
            return
        relation = np.maximum(self._relation(reader, thread), self._readers[at])
        is_fresh = (reader == _NOBODY) | (
            (relation > 0) & self._is_ordered(relation, self._read_stamp[at], stamp)
        )
        self._readers[at] = np.where(is_fresh, 0, relation)
        self._reader[at] = thread
        self._read_stamp[at] = np.where(is_fresh, stamp, np.maximum(stamp, self._read_stamp[at]))
        # Of several lanes with the same granule the last one was stored. The others show their relation to
        # it.
        stored = self._reader[at]
        is_other = stored != thread
        if is_other.any():
            others = np.broadcast_to(thread, at.shape)[is_other]
            np.maximum.at(self._readers, at[is_other], self._relation(stored[is_other], others))

    def _record_write(self, at: np.ndarray, thread: np.ndarray, stamp: np.ndarray) -> None:
        self._writer[at] = thread
        self._write_stamp[at] = stamp
        self._reader[at] = _NOBODY
        self._readers[at] = 0
        bad = self._writer[at] != thread
        if bad.any():
            self._report(at, thread, np.argwhere(bad)[0], "write is not ordered with the write", self._writer)

    def _report(
        self, at: np.ndarray, thread: np.ndarray, where: np.ndarray, what: str, others: np.ndarray
    ) -> None:
        lane, part = int(where[0]), int(where[1])
        granule = int(at[lane, part])
        raise Trap(
            "race",
            f"{self._describe(granule * self.granule)}: {what} of {self._name(int(others[granule]))}, "
            f"by {self._name(int(thread[lane, 0]))}",
        )

    @staticmethod
    def _name(thread: int) -> str:
        return f"block {thread >> _THREAD_BITS} thread {thread & ((1 << _THREAD_BITS) - 1)}"
