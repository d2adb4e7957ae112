# SPDX-License-Identifier: Apache-2.0
"""Computes how many blocks of a kernel fit on a multiprocessor.

The limits are those of the CUDA C++ Programming Guide, "Compute Capabilities". Warps get registers in pieces
of 256, and each of four partitions has a quarter of the registers. A block's shared memory is a multiple of
128 bytes, and the system keeps 1 KiB for each block.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP_SIZE = 32
PARTITIONS = 4
REGISTERS = 64 * 1024
REGISTER_PIECE = 256
RESERVED_BYTES = 1024
SHARED_PIECE = 128


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor has."""

    shared_bytes: int
    warps: int
    blocks: int


MULTIPROCESSORS = {
    "sm_80": Multiprocessor(164 * 1024, 64, 32),
    "sm_86": Multiprocessor(100 * 1024, 48, 16),
    "sm_89": Multiprocessor(100 * 1024, 48, 24),
    "sm_90a": Multiprocessor(228 * 1024, 64, 32),
    "sm_100": Multiprocessor(228 * 1024, 64, 32),
    "sm_120": Multiprocessor(100 * 1024, 48, 24),
}


def blocks_of(target: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Returns the blocks that share a multiprocessor. It is 0 if one block does not fit."""
    limits = MULTIPROCESSORS[target]
    warps = round_up(threads, WARP_SIZE) // WARP_SIZE
    of_warp = round_up(registers * WARP_SIZE, REGISTER_PIECE)
    warps_by_registers = REGISTERS // PARTITIONS // of_warp * PARTITIONS
    of_block = round_up(shared_bytes, SHARED_PIECE) + RESERVED_BYTES
    return min(
        limits.blocks, limits.warps // warps, warps_by_registers // warps, limits.shared_bytes // of_block
    )


def round_up(value: int, piece: int) -> int:
    """Returns the smallest multiple of `piece` that is at least `value`."""
    return (value + piece - 1) // piece * piece
