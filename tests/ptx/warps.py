# SPDX-License-Identifier: Apache-2.0
"""Instructions of a whole warp: shuffles, votes, __syncwarp, ldmatrix and mma."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptx import tensor_core
from ptx.counters import by_warp
from ptx.errors import Trap
from ptx.lanes import WARP, Lanes
from ptx.loads import address_source, elements
from ptx.operands import Pair, Register
from ptx.parser import Instruction
from ptx.table import Operation, instruction, unknown

if TYPE_CHECKING:
    from ptx.crew import Crew

_LANE_BITS = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
_ALL_LANES = 0xFFFFFFFF
_MATRIX_BYTES_PER_ROW = 16
_FRAGMENTS = tensor_core.rows_and_columns_of_fragments()


def check_members(lanes: Lanes, members: np.ndarray, what: Instruction) -> None:
    """Raises Trap unless each lane is in its mask of members, and all members are here."""
    chosen = lanes.select(members)
    if lanes.has_whole_warps and (chosen == _ALL_LANES).all():
        return
    here = (lanes.by_warp * _LANE_BITS).sum(axis=1, dtype=np.uint32)
    wanted = members.reshape(-1, WARP)
    is_wrong = (wanted & ~here[:, None]).astype(np.bool_) | ((wanted & _LANE_BITS) == 0)
    is_wrong &= lanes.by_warp
    if is_wrong.any():
        warp, lane = (int(number) for number in np.argwhere(is_wrong)[0])
        raise Trap(
            "absent lanes",
            f"lane {lane} names the lanes {int(wanted[warp, lane]):#010x}, but {int(here[warp]):#010x} "
            f"arrive: {what.text}",
        )


def _targets(crew: "Crew", what: Instruction, ptx_type: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the rows of d or d|p."""
    result = what.operands[0]
    if isinstance(result, Pair):
        return crew.frame.write(result.first, ptx_type), crew.frame.write(result.second, "pred")
    return crew.frame.write(result, ptx_type), None


@instruction("shfl")
def build_shuffle(crew: "Crew", what: Instruction) -> Operation:
    """shfl.sync."""
    if what.modifiers[0] != "sync" or what.modifiers[1] not in ("up", "down", "bfly", "idx"):
        raise unknown(what)
    mode = what.modifiers[1]
    target, has_source = _targets(crew, what, "b32")
    source, distance, limits, members = (crew.frame.read(operand, "b32") for operand in what.operands[1:5])
    own = crew.lane_in_warp
    first_of_warp = np.arange(crew.lanes) - own

    def run(lanes: Lanes) -> None:
        check_members(lanes, members, what)
        lane, is_inside = _source_lane(mode, own, distance, limits)
        at = first_of_warp + np.where(is_inside, lane, own)
        if not lanes.has_whole_warps and not lanes.mask[at[lanes.index]].all():
            raise Trap("absent lanes", f"a lane reads from one that is not here: {what.text}")
        lanes.put(target, source[at])
        if has_source is not None:
            lanes.put(has_source, is_inside)

    return run


def _source_lane(
    mode: str, own: np.ndarray, distance: np.ndarray, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lane that each lane reads from, and whether it is inside of the lane's segment."""
    by = (distance & np.uint32(31)).astype(np.int64)
    clamp = (limits & np.uint32(31)).astype(np.int64)
    segment = ((limits >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
    least = own & segment
    most = least | (clamp & ~segment)
    if mode == "up":
        return own - by, own - by >= most
    lane = {"down": own + by, "bfly": own ^ by, "idx": least | (by & ~segment)}[mode]
    return lane, lane <= most


@instruction("vote")
def build_vote(crew: "Crew", what: Instruction) -> Operation:
    """vote.sync.ballot, .all, .any and .uni."""
    mode = what.modifiers[1]
    if what.modifiers[0] != "sync" or mode not in ("ballot", "all", "any", "uni"):
        raise unknown(what)
    target = crew.frame.write(what.operands[0], "b32" if mode == "ballot" else "pred")
    source = crew.predicate_source(what.operands[1])
    members = crew.frame.read(what.operands[2], "b32")

    def run(lanes: Lanes) -> None:
        check_members(lanes, members, what)
        yes = (source() & lanes.mask).reshape(-1, WARP)
        no = (~source() & lanes.mask).reshape(-1, WARP)
        result = {
            "ballot": lambda: (yes * _LANE_BITS).sum(axis=1, dtype=np.uint32),
            "all": lambda: ~no.any(axis=1),
            "any": lambda: yes.any(axis=1),
            "uni": lambda: ~(no.any(axis=1) & yes.any(axis=1)),
        }[mode]()
        lanes.put(target, np.repeat(result, WARP))

    return run


@instruction("bar", "barrier")
def build_syncwarp(crew: "Crew", what: Instruction) -> Operation:
    """bar.warp.sync, of all lanes that are left of a warp. Barriers of blocks are the crew's own."""
    if what.modifiers[:2] != ("warp", "sync"):
        raise unknown(what)
    members = crew.frame.read(what.operands[0], "b32")

    def run(lanes: Lanes) -> None:
        alive = crew.alive.reshape(-1, WARP)[lanes.warps]
        if not (lanes.by_warp[lanes.warps] == alive).all() or not (lanes.select(members) == _ALL_LANES).all():
            raise Trap("absent lanes", f"only some lanes of a warp arrive: {what.text}")
        crew.stamps[lanes.mask] += 1

    return run


@instruction("membar", "fence")
def build_fence(crew: "Crew", what: Instruction) -> Operation:
    """Fences order nothing here: only barriers do."""
    del crew, what
    return lambda lanes: None


def _check_whole(lanes: Lanes, what: Instruction) -> None:
    if not lanes.has_whole_warps:
        raise Trap("absent lanes", f"all 32 lanes must arrive: {what.text}")


@instruction("ldmatrix")
def build_load_matrices(crew: "Crew", what: Instruction) -> Operation:
    """ldmatrix.m8n8 of 16-bit elements. Lane l gives the address of row l % 8 of matrix l / 8.

    It receives columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each matrix, or of its transpose.
    """
    if "m8n8" not in what.modifiers or "b16" not in what.modifiers:
        raise unknown(what)
    rows = [crew.frame.write(operand, "b32") for operand in elements(what.operands[0])]
    address = address_source(crew, what.operands[1])
    is_transposed = "trans" in what.modifiers
    count = len(rows)

    def run(lanes: Lanes) -> None:
        _check_whole(lanes, what)
        launch = crew.launch
        # With fewer than four matrices only the first lanes' addresses count.
        mask = lanes.by_warp.copy()
        mask[:, 8 * count :] = False
        givers = lanes if count == 4 else Lanes(mask.reshape(-1), crew.alive_count)
        addresses = address(givers)
        places = launch.shared.place(addresses, givers.select(crew.block_slot), _MATRIX_BYTES_PER_ROW)
        threads, stamps = givers.select(crew.thread), givers.select(crew.stamps)
        launch.shared_shadow.read(places, _MATRIX_BYTES_PER_ROW, threads, stamps)
        launch.counters.count_shared(
            by_warp(addresses, givers.index, crew.lanes), _MATRIX_BYTES_PER_ROW, is_matrix=True
        )
        elements_at = (places // 2)[:, None] + np.arange(8)
        matrices = launch.shared.view(np.dtype(np.uint16))[elements_at].reshape(-1, count, 8, 8)
        if is_transposed:
            matrices = np.ascontiguousarray(matrices.transpose(0, 1, 3, 2))
        registers = matrices.view(np.uint32).reshape(-1, count, WARP)
        for number, row in enumerate(rows):
            row.reshape(-1, WARP)[lanes.warps] = registers[:, number]

    return run


@instruction("mma")
def build_mma(crew: "Crew", what: Instruction) -> Operation:
    """mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32 for T = bf16 or f16."""
    if what.modifiers[:5] != ("sync", "aligned", "m16n8k16", "row", "col") or what.types[0] != "f32":
        raise unknown(what)
    dtype = what.types[1]
    if what.types != ("f32", dtype, dtype, "f32") or dtype not in ("bf16", "f16"):
        raise unknown(what)
    targets = [crew.frame.write(operand, "f32") for operand in elements(what.operands[0])]
    sources = [
        [_by_warp(crew, operand, ptx_type) for operand in elements(operands)]
        for operands, ptx_type in zip(what.operands[1:], ("b32", "b32", "f32"))
    ]

    def run(lanes: Lanes) -> None:
        _check_whole(lanes, what)
        warps = lanes.warps
        a = _gather(sources[0], warps, _FRAGMENTS["a"], (16, 16))
        b = _gather(sources[1], warps, _FRAGMENTS["b"], (16, 8))
        c = _gather(sources[2], warps, _FRAGMENTS["c"], (16, 8))
        d = tensor_core.multiply(a, b, c, dtype, crew.launch.architecture)
        values = d[:, _FRAGMENTS["c"][0], _FRAGMENTS["c"][1]]
        for number, row in enumerate(targets):
            row.reshape(-1, WARP)[warps] = values[:, :, number]

    return run


def _by_warp(crew: "Crew", operand: object, ptx_type: str) -> np.ndarray:
    assert isinstance(operand, Register)
    return crew.frame.read(operand, ptx_type).reshape(-1, WARP)


def _gather(
    registers: list[np.ndarray],
    warps: np.ndarray,
    places: tuple[np.ndarray, np.ndarray],
    shape: tuple[int, int],
) -> np.ndarray:
    """Returns the matrices [warps, rows, columns] in registers, whose 32-bit integers hold two elements."""
    values = np.stack([row[warps] for row in registers], axis=2)
    if values.dtype == np.uint32:
        values = values.view(np.uint16)
    matrices = np.empty((len(warps), *shape), values.dtype)
    matrices[:, places[0], places[1]] = values
    return matrices
