# SPDX-License-Identifier: Apache-2.0
"""Finds the loops of a function, and the path that an iteration takes.

A loop is a natural loop: an edge to a block that dominates its source, and all blocks between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from disassembly import INSTRUCTION_BYTES, Instruction

ENDS = ("EXIT", "RET", "BRX", "BRXU", "JMP", "KILL", "BPT")

# Parts of a score are compared from the left.
Score = tuple[int, ...]
NO_SCORE: Score = (0, 0, 0, 0)


@dataclass
class Block:
    """Instructions that run one after another, and the blocks that may follow. `ends`: the thread may end."""

    instructions: list[Instruction]
    next: list[int] = field(default_factory=list)
    ends: bool = False


@dataclass(frozen=True)
class Loop:
    """A natural loop: the number of its first block, and the numbers of all its blocks."""

    header: int
    blocks: frozenset[int]


def target_of(instruction: Instruction) -> int | None:
    """Returns the number of the instruction that a branch jumps to."""
    match = re.search(r"(?:^|,)0x([0-9a-f]+)$", instruction.operands)
    return int(match.group(1), 16) // INSTRUCTION_BYTES if match else None


def split(code: list[Instruction]) -> list[Block]:
    """Splits a function into basic blocks. A call of another function returns, so it ends no block.

    ptxas leaves loops for sm_80 by CALL with an address of the same function, from which nothing returns.
    """
    targets: dict[int, int] = {}
    rejoins: dict[str, int] = {}
    for i, instruction in enumerate(code):
        if instruction.base == "BSSY":
            barrier, _, _ = instruction.operands.partition(",")
            rejoins[barrier] = target_of(instruction) or 0
        elif instruction.base == "BSYNC":
            targets[i] = rejoins.get(instruction.operands, i + 1)
        elif is_branch(instruction):
            targets[i] = target_of(instruction)
    ends = {i for i, instruction in enumerate(code) if i in targets or instruction.base in ENDS}
    starts = sorted({0, *targets.values(), *(i + 1 for i in ends)} & set(range(len(code))))
    number = {start: block for block, start in enumerate(starts)}
    blocks = []
    for start, end in zip(starts, [*starts[1:], len(code)], strict=True):
        block, last = Block(code[start:end], ends=code[end - 1].base == "EXIT"), end - 1
        if last in targets:
            block.next.append(number[targets[last]])
        if (last not in ends or is_conditional(code[last])) and end in number:
            block.next.append(number[end])
        blocks.append(block)
    return blocks


def is_branch(instruction: Instruction) -> bool:
    """Returns whether the instruction jumps inside the function.

    BRA.DIV and BRA.CONV lead to code for warps whose lanes have diverged. No such warp is counted.
    """
    if instruction.base == "BRA" and {"DIV", "CONV"} & set(instruction.modifiers):
        return False
    return instruction.base in ("BRA", "CALL") and target_of(instruction) is not None


def is_conditional(instruction: Instruction) -> bool:
    """Returns whether the instruction after a jump may follow it."""
    if instruction.predicate not in ("", "@PT"):
        return True
    return bool(re.match(r"!?U?P\d", instruction.operands))  # a second predicate is an operand of BRA


def dominators(blocks: list[Block]) -> list[set[int]]:
    """Returns for each block those through which every path to it leads. Unreachable blocks have all."""
    everything = set(range(len(blocks)))
    before: list[list[int]] = [[] for _ in blocks]
    for i, block in enumerate(blocks):
        for successor in block.next:
            before[successor].append(i)
    result = [{0}] + [set(everything) for _ in blocks[1:]]
    changed = True
    while changed:
        changed = False
        for i in range(1, len(blocks)):
            joined = set(everything)
            for predecessor in before[i]:
                joined &= result[predecessor]
            joined.add(i)
            if joined != result[i]:
                result[i], changed = joined, True
    return result


def loops_of(blocks: list[Block]) -> list[Loop]:
    """Returns the natural loops in order of their headers. Loops with one header are one loop."""
    dominating = dominators(blocks)
    before: dict[int, list[int]] = {}
    for i, block in enumerate(blocks):
        for successor in block.next:
            before.setdefault(successor, []).append(i)
    bodies: dict[int, set[int]] = {}
    reachable = reachable_from(blocks, 0)
    for i in reachable:
        for header in blocks[i].next:
            if header not in dominating[i]:
                continue
            body, waiting = bodies.setdefault(header, {header}), [i]
            while waiting:
                at = waiting.pop()
                if at not in body:
                    body.add(at)
                    waiting += [block for block in before.get(at, []) if block in reachable]
    return [Loop(header, frozenset(body)) for header, body in sorted(bodies.items())]


def reachable_from(blocks: list[Block], first: int) -> set[int]:
    """Returns the blocks that can follow `first`, and itself."""
    seen, waiting = {first}, [first]
    while waiting:
        for successor in blocks[waiting.pop()].next:
            if successor not in seen:
                seen.add(successor)
                waiting.append(successor)
    return seen


@dataclass(frozen=True)
class Path:
    """The instructions of one way through a region, apart from the loops inside, and those loops."""

    instructions: list[Instruction]
    inner: list[Loop]


class PathFinder:
    """Finds the path with the greatest score through a loop or a function.

    The score of a path is the sum of its instructions' scores. A loop inside is passed as if it ran once.
    """

    def __init__(
        self, blocks: list[Block], loops: list[Loop], score_of: Callable[[Instruction], Score]
    ) -> None:
        self.blocks, self.loops, self.score_of = blocks, loops, score_of

    def through_loop(self, loop: Loop) -> Path:
        """Returns the best path from a loop's header back to it."""
        inner = [other for other in self.loops if other.blocks < loop.blocks]
        return self._best(loop.blocks, loop.header, loop.header, inner)

    def through_function(self) -> Path:
        """Returns the best path from the first instruction to the end."""
        return self._best(frozenset(reachable_from(self.blocks, 0)), 0, None, self.loops)

    def _best(self, region: frozenset[int], first: int, end: int | None, inner: list[Loop]) -> Path:
        outermost = [loop for loop in inner if not any(loop.blocks < other.blocks for other in inner)]
        loop_of = {block: loop for loop in outermost for block in loop.blocks}
        known: dict[int, tuple[Score, list[int]] | None] = {}

        def best_from(at: int) -> tuple[Score, list[int]] | None:
            if at not in known:
                inside = loop_of[at].blocks if at in loop_of else frozenset([at])
                after = {successor for block in inside for successor in self.blocks[block].next}
                ways = [best_from(successor) for successor in sorted((after & region) - inside - {end})]
                if end in after or (end is None and any(self.blocks[block].ends for block in inside)):
                    ways.append((NO_SCORE, []))
                best = max((way for way in ways if way), key=lambda way: way[0], default=None)
                own = self._score(loop_of[at] if at in loop_of else self.blocks[at])
                known[at] = best and (add(own, best[0]), [at, *best[1]])
            return known[at]

        found = best_from(first)
        passed = found[1] if found else []
        return Path(
            [i for at in passed if at not in loop_of for i in self.blocks[at].instructions],
            [loop_of[at] for at in passed if at in loop_of],
        )

    def _score(self, part: Block | Loop) -> Score:
        passed = part.instructions if isinstance(part, Block) else self.through_loop(part).instructions
        total = NO_SCORE
        for instruction in passed:
            total = add(total, self.score_of(instruction))
        return total


def add(left: Score, right: Score) -> Score:
    """Adds two scores."""
    return tuple(a + b for a, b in zip(left, right, strict=True))
