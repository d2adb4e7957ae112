# SPDX-License-Identifier: Apache-2.0
"""Tests of the counts: loops, paths, pipes, occupancy, and the comparison with the table."""

from __future__ import annotations

import struct
import unittest
from pathlib import Path

import budgets
from cubins import BudgetError, cubins_in
from disassembly import INSTRUCTION_BYTES, Instruction, short_name
from hot_kernels import HotKernel
from loops import loops_of, split
from occupancy import blocks_of
from opcodes import shared_cycles, width_bits
from regions import counted_region


def assemble(text: str) -> list[Instruction]:
    """Reads one instruction a line: [label:] [@predicate] opcode [operands]. Labels become addresses."""
    lines = [line.split() for line in text.strip().splitlines()]
    labels = {}
    for number, words in enumerate(lines):
        if words[0].endswith(":"):
            labels[words.pop(0)[:-1]] = hex(number * INSTRUCTION_BYTES)
    code = []
    for words in lines:
        predicate = words.pop(0) if words[0].startswith("@") else ""
        operands = words[1] if len(words) > 1 else ""
        code.append(Instruction(predicate, words[0], ",".join(labels.get(o, o) for o in operands.split(","))))
    return code


# A loop with a rare branch, an inner loop of products, a copy, and an exit by CALL, as ptxas makes for sm_80.
PRODUCTS = """
      MOV R0
outer: BAR.SYNC
      @P0 BRA copied
      LDGSTS.E.BYPASS.128 [R1]
copied: @!P1 BRA whole
      FSEL R2
      FSEL R3
whole: LDSM.16.M88.4 R4,[R5]
inner: HMMA.16816.F32.BF16 R8
      @P2 BRA inner
      HMMA.16816.F32.BF16 R9
      @P3 CALL.REL.NOINC done
      BRA outer
done: EXIT
"""

STREAM = """
      @P0 EXIT
loop: LDG.E.128 R4,[R2]
      @P1 BRA odd
      FADD R4
      STG.E.128 [R6],R4
      @P2 BRA loop
      EXIT
odd:  STG.E.U16 [R6],R4
      BRA loop
"""


class Loops(unittest.TestCase):
    def test_natural_loops(self) -> None:
        blocks = split(assemble(PRODUCTS))
        found = [len(loop.blocks) for loop in loops_of(blocks)]
        self.assertEqual(found, [8, 1])

    def test_inner_loop_runs_until_all_products_are_made(self) -> None:
        kernel = HotKernel("f.cu", "k", "products", 128, products=5)
        region = counted_region(assemble(PRODUCTS), kernel)
        count = {base: sum(i.base == base for i in region) for base in ("HMMA", "LDGSTS", "FSEL", "BRA")}
        self.assertEqual(count, {"HMMA": 5, "LDGSTS": 1, "FSEL": 0, "BRA": 7})

    def test_wrong_number_of_products(self) -> None:
        with self.assertRaisesRegex(BudgetError, "has 2 HMMA in its hot loop instead of 0"):
            counted_region(assemble(PRODUCTS), HotKernel("f.cu", "k", "products", 128, products=0))

    def test_stream_takes_the_wide_path(self) -> None:
        region = counted_region(assemble(STREAM), HotKernel("f.cu", "k", "stream", 128))
        self.assertEqual([i.base for i in region], ["LDG", "BRA", "FADD", "STG", "BRA"])

    def test_kernel_without_a_loop(self) -> None:
        code = assemble("@P0 EXIT\nLDG.E.64 R2,[R4]\nSTG.E.64 [R6],R2\n@P1 EXIT\nSTG.E.U16 [R6],R2\nEXIT")
        region = counted_region(code, HotKernel("f.cu", "k", "whole", 128))
        self.assertEqual([i.opcode for i in region], ["EXIT", "LDG.E.64", "STG.E.64", "EXIT"])


class Figures(unittest.TestCase):
    def test_row(self) -> None:
        kernel = HotKernel("f.cu", "k", "stream", 128)
        row = budgets.figures_of(assemble(STREAM), kernel, "sm_90a", budgets.Resources(255, 0, 8))
        expected = {"units": "2", "slots": "2.500", "fma": "0.500", "global": "1.000", "control": "1.000"}
        expected |= {"load_bits": "128", "store_bits": "128", "spill_bytes": "8", "blocks": "2"}
        self.assertEqual({name: row[name] for name in expected}, expected)
        self.assertEqual(list(row), budgets.COLUMNS)

    def test_unknown_opcode(self) -> None:
        code = assemble("LDG.E.128 R4,[R2]\nNEWOP R1\nEXIT")
        with self.assertRaisesRegex(BudgetError, "unknown opcode NEWOP"):
            budgets.figures_of(
                code, HotKernel("f.cu", "k", "whole", 128), "sm_80", budgets.Resources(32, 0, 0)
            )

    def test_widths_and_shared_cycles(self) -> None:
        cases = {
            "LDS.128 R0": (128, 4),
            "LDS R0": (32, 1),
            "STS.U16 R0": (16, 1),
            "LDSM.16.M88.4 R0": (32, 4),
        }
        cases |= {"LDGSTS.E.BYPASS.128 R0": (128, 4), "SHFL.BFLY R0": (32, 1), "FADD R0": (32, 0)}
        for text, expected in cases.items():
            instruction = assemble(text)[0]
            self.assertEqual((width_bits(instruction), shared_cycles(instruction)), expected, text)
        self.assertEqual(shared_cycles(assemble("@!PT LDS RZ")[0]), 0)

    def test_blocks(self) -> None:
        self.assertEqual(blocks_of("sm_90a", 128, 255, 49152), 2)  # registers: eight warps
        self.assertEqual(blocks_of("sm_86", 128, 241, 65536), 1)  # shared memory
        self.assertEqual(blocks_of("sm_80", 256, 32, 0), 8)  # warps
        self.assertEqual(blocks_of("sm_80", 128, 250, 98304), 1)

    def test_short_name(self) -> None:
        name = (
            "void lockstep::(anonymous namespace)::k<lockstep::Layout<__nv_bfloat16, 1>, float>(int, float*)"
        )
        self.assertEqual(short_name(name), "k<Layout<bf16, 1>, f32>")


class Comparison(unittest.TestCase):
    row = {"file": "f.cu", "kernel": "k", "target": "sm_80"}
    row |= dict.fromkeys(budgets.FEWER_IS_BETTER, "1.000") | dict.fromkeys(budgets.MORE_IS_BETTER, "2")

    def test_tolerance(self) -> None:
        worse, better = budgets.compare([self.row], [self.row | {"slots": "1.030", "alu": "0.970"}])
        self.assertEqual((worse, better), ([], []))
        worse, better = budgets.compare(
            [self.row], [self.row | {"slots": "1.031", "blocks": "1", "alu": "0.96"}]
        )
        self.assertEqual(worse, ["k (f.cu) for sm_80: slots 1 -> 1.031", "k (f.cu) for sm_80: blocks 2 -> 1"])
        self.assertEqual(better, ["k (f.cu) for sm_80: alu 1 -> 0.96"])

    def test_anything_is_worse_than_zero(self) -> None:
        worse, _ = budgets.compare([self.row | {"spill_bytes": "0"}], [self.row | {"spill_bytes": "8"}])
        self.assertEqual(worse, ["k (f.cu) for sm_80: spill_bytes 0 -> 8"])

    def test_rows(self) -> None:
        worse, _ = budgets.compare([self.row | {"kernel": "old"}], [self.row])
        self.assertEqual(len(worse), 2)
        worse, _ = budgets.compare([self.row, self.row | {"target": "sm_120"}], [self.row])
        self.assertEqual(worse, [])


class Cubins(unittest.TestCase):
    @staticmethod
    def container(kind: int, payload: bytes) -> bytes:
        entry = struct.pack("<HHIQ", kind, 0x0101, 64, len(payload)).ljust(64, b"\0") + payload
        return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry

    def test_cubins_among_ptx(self) -> None:
        section = self.container(1, b"ptx     ") + b"\0" * 8 + self.container(2, b"\x7fELF1234")
        self.assertEqual(list(cubins_in(section, Path("x.o"))), [b"\x7fELF1234"])

    def test_compressed(self) -> None:
        with self.assertRaisesRegex(BudgetError, "x.o: a cubin is compressed"):
            list(cubins_in(self.container(2, b"\x28\xb5\x2f\xfd1234"), Path("x.o")))


if __name__ == "__main__":
    unittest.main()
