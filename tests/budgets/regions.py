# SPDX-License-Identifier: Apache-2.0
"""Chooses the instructions of a hot kernel that are counted.

A loop, or a kernel without one, is counted along one path. This path has the most HMMA, then the most
asynchronous copies, then the most accesses of the greatest width to global memory, and then the fewest
instructions. So what is rarely needed, such as the mask of a tile on the diagonal, is not counted.
"""

from __future__ import annotations

from cubins import BudgetError
from disassembly import Instruction
from hot_kernels import HotKernel
from loops import Loop, Path, PathFinder, loops_of, split
from opcodes import global_bytes, width_bits


def counted_region(code: list[Instruction], kernel: HotKernel) -> list[Instruction]:
    """Returns the instructions of an iteration of the hot loop, or of a thread that does not loop."""
    blocks = split(code)
    loops = loops_of(blocks)
    in_loops = [i for loop in loops for block in loop.blocks for i in blocks[block].instructions]
    widest = max((width_bits(i) for i in in_loops or code if global_bytes(i)), default=0)

    def score(instruction: Instruction) -> tuple[int, ...]:
        wide = global_bytes(instruction) > 0 and width_bits(instruction) == widest
        return (int(instruction.base == "HMMA"), int(instruction.base == "LDGSTS"), int(wide), -1)

    finder = PathFinder(blocks, loops, score)
    if kernel.kind == "whole":
        way = finder.through_function()
        return way.instructions + [i for loop in way.inner for i in finder.through_loop(loop).instructions]
    ways = [(loop, finder.through_loop(loop)) for loop in loops]
    if kernel.kind == "products":
        return iteration_of_products(ways, finder, kernel)

    def weight(instruction: Instruction) -> bool:
        if kernel.kind == "sums":
            return instruction.base == "FFMA"
        return bool(score(instruction)[2]) and kernel.most in ("", instruction.base)

    innermost = [way.instructions for _, way in ways if not way.inner]
    found = max(innermost, key=lambda code: sum(map(weight, code)), default=[])
    if not any(map(weight, found)):
        raise BudgetError(f"{kernel.name} in {kernel.file} has no hot loop: see tests/budgets/hot_kernels.py")
    return found


def iteration_of_products(
    ways: list[tuple[Loop, Path]], finder: PathFinder, kernel: HotKernel
) -> list[Instruction]:
    """Returns an iteration of the loop with the most HMMA. Inner loops run until all products are made.

    A loop that only repeats another one, for each query head of a group, has as many and is longer.
    """

    def products(instructions: list[Instruction]) -> int:
        return sum(i.base == "HMMA" for i in instructions)

    def all_products(way: Path) -> int:
        return products(way.instructions) + sum(
            products(finder.through_loop(loop).instructions) for loop in way.inner
        )

    way = max((way for _, way in ways), key=lambda way: (all_products(way), -len(way.instructions)))
    inside = [finder.through_loop(loop).instructions for loop in way.inner]
    once = products(way.instructions)
    repeated = sum(map(products, inside))
    trips = max(0, kernel.products - once) // repeated if repeated else 0
    if once + trips * repeated != kernel.products:
        raise BudgetError(
            f"{kernel.name} in {kernel.file} has {once + repeated} HMMA in its hot loop instead of "
            f"{kernel.products}: correct its tiles in tests/budgets/hot_kernels.py"
        )
    return way.instructions + [i for body in inside for i in body * trips]
