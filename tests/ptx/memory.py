# SPDX-License-Identifier: Apache-2.0
"""The memories of a launch, and the check of every address."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptx.errors import Trap

# Where the windows begin in the generic address space. Device memory is elsewhere.
SHARED_WINDOW = 0x4000_0000_0000_0000
PARAMETER_WINDOW = 0x5000_0000_0000_0000
LOCAL_WINDOW = 0x6000_0000_0000_0000
# The address of a block's first shared byte. It is not 0: a GPU may keep the first kilobyte for itself.
SHARED_BASE = 1024
LOCAL_BASE = 256
_POISON = np.uint8(0xF7)


@dataclass
class Region:
    """An allocation of device or pinned memory."""

    address: int
    bytes: int
    name: str = ""


class Memory:
    """Bytes, as typed arrays over the same storage. Places in it are byte offsets."""

    def __init__(self, size: int) -> None:
        padded = max(16, (size + 15) // 16 * 16)
        self.bytes = np.zeros(padded, np.uint8)
        self.size = size
        self._views: dict[np.dtype, np.ndarray] = {}

    def view(self, dtype: np.dtype) -> np.ndarray:
        """Returns all bytes as an array of a type."""
        if dtype not in self._views:
            self._views[dtype] = self.bytes.view(dtype)
        return self._views[dtype]


class GlobalMemory(Memory):
    """All allocations, one after another in one array. Addresses between them are errors."""

    def __init__(self, regions: list[Region]) -> None:
        self.regions = sorted(regions, key=lambda region: region.address)
        places = [0]
        for region in self.regions:
            places.append(places[-1] + (region.bytes + 255) // 256 * 256)
        super().__init__(places[-1])
        self._places = np.array(places[:-1], np.int64)
        self._begins = np.array([region.address for region in self.regions], np.int64)
        self._ends = np.array([region.address + region.bytes for region in self.regions], np.int64)

    def slice(self, region: Region) -> np.ndarray:
        """Returns the bytes of an allocation."""
        place = int(self._places[self.regions.index(region)])
        return self.bytes[place : place + region.bytes]

    def place(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Returns the places of accesses of `size` bytes. Raises Trap if one is not inside an allocation."""
        check_alignment(addresses, size, "global")
        if len(self.regions) == 0:
            raise Trap("out of bounds", f"access to {int(addresses[0]):#x}, but there is no allocation")
        first = int(np.searchsorted(self._begins, addresses[0], side="right")) - 1
        if (
            first >= 0
            and addresses.min() >= self._begins[first]
            and addresses.max() + size <= self._ends[first]
        ):
            return addresses + (self._places[first] - self._begins[first])
        at = np.searchsorted(self._begins, addresses, side="right") - 1
        is_wrong = (at < 0) | (addresses + size > self._ends[at])
        if is_wrong.any():
            lane = int(np.flatnonzero(is_wrong)[0])
            raise Trap("out of bounds", f"{size} bytes at {self.describe(int(addresses[lane]))}")
        return addresses + (self._places[at] - self._begins[at])

    def describe(self, address: int) -> str:
        """Returns an address as an offset from the allocation before it."""
        at = int(np.searchsorted(self._begins, address, side="right")) - 1
        if at < 0:
            return f"{address:#x}, before every allocation"
        region = self.regions[at]
        return f"allocation {region.name or at} ({region.bytes} bytes) + {address - region.address}"

    def describe_place(self, place: int) -> str:
        """Returns a place as an offset in its allocation."""
        at = int(np.searchsorted(self._places, place, side="right")) - 1
        return self.describe(int(self._begins[at]) + place - int(self._places[at]))


class SharedMemory(Memory):
    """The shared memory of several blocks, one after another."""

    def __init__(self, bytes_per_block: int, blocks: int) -> None:
        self.stride = (bytes_per_block + 15) // 16 * 16
        self.bytes_per_block = bytes_per_block
        super().__init__(self.stride * blocks)
        self.poison()

    def poison(self) -> None:
        """Fills the memory with a pattern that is a large negative number in fp32, bf16 and f16."""
        self.bytes[...] = _POISON

    def place(self, addresses: np.ndarray, block_slots: np.ndarray, size: int) -> np.ndarray:
        """Returns the places of shared addresses of lanes whose blocks are in the given slots."""
        offsets = offsets_in_window(addresses, size, SHARED_BASE, self.bytes_per_block, "shared")
        return offsets + block_slots * self.stride

    def describe_place(self, place: int) -> str:
        """Returns a place as an offset in the block's shared memory."""
        return f"shared memory + {place % self.stride if self.stride else place}"


class LocalMemory(Memory):
    """The memory of each lane of a crew for itself, one after another."""

    def __init__(self, bytes_per_lane: int, lanes: int) -> None:
        self.stride = (bytes_per_lane + 15) // 16 * 16
        self.bytes_per_lane = bytes_per_lane
        super().__init__(self.stride * lanes)
        self.bytes[...] = _POISON

    def place(self, addresses: np.ndarray, lanes: np.ndarray, size: int) -> np.ndarray:
        """Returns the places of local addresses of some lanes."""
        offsets = offsets_in_window(addresses, size, LOCAL_BASE, self.bytes_per_lane, "local")
        return offsets + lanes * self.stride


def offsets_in_window(addresses: np.ndarray, size: int, base: int, limit: int, space: str) -> np.ndarray:
    """Returns the offsets of accesses after `base`. Raises Trap if one is not within `limit` bytes."""
    check_alignment(addresses, size, space)
    offsets = addresses - base
    if offsets.min() < 0 or offsets.max() + size > limit:
        wrong = offsets[(offsets < 0) | (offsets + size > limit)]
        raise Trap("out of bounds", f"{size} bytes at {space} memory + {int(wrong[0])} of {limit}")
    return offsets


def check_alignment(addresses: np.ndarray, size: int, space: str) -> None:
    """Raises Trap unless every address is a multiple of the access's size."""
    if size > 1:
        low = np.bitwise_or.reduce(addresses) & (size - 1)
        if low:
            wrong = addresses[(addresses & (size - 1)) != 0]
            raise Trap("misaligned", f"{space} access of {size} bytes at {int(wrong[0]):#x}")
