# SPDX-License-Identifier: Apache-2.0
"""Tests loads, stores, cp.async, matrices, races in device memory, and the counters."""

from __future__ import annotations

import unittest

import numpy as np

from ptx import tensor_core
from ptx.counters import Counters, bank_passes
from ptx.errors import Trap
from ptx.tests.kernels import launch_of, run

ZEROS = np.zeros(64, np.uint32)
RANDOM = np.random.default_rng(6)


class Addresses(unittest.TestCase):
    """Vectors, narrow accesses, and wrong addresses."""

    def test_vectors(self) -> None:
        data = RANDOM.integers(0, 1 << 32, 128, dtype=np.uint32)
        body = """
  ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd2];
  st.global.v2.u32 [%rd2], {%r12, %r13};
  st.global.v2.u32 [%rd2+8], {%r10, %r11};
"""
        expected = data.reshape(32, 4)[:, [2, 3, 0, 1]].reshape(-1)
        np.testing.assert_array_equal(run(body, data, stride=16), expected)

    def test_a_signed_byte_fills_its_register(self) -> None:
        data = np.full(32, 0xFFFFFF80, np.uint32)
        body = "ld.global.s8 %rs1, [%rd2];\ncvt.s32.s16 %r10, %rs1;\nst.global.u32 [%rd2], %r10;"
        self.assertEqual(run(body, data).view(np.int32).tolist(), [-128] * 32)

    def test_beyond_the_end(self) -> None:
        with self.assertRaisesRegex(Trap, r"^out of bounds: 4 bytes at allocation 0 \(256 bytes\) \+ 256"):
            run("ld.global.u32 %r10, [%rd0+256];", ZEROS)
        with self.assertRaisesRegex(Trap, "^out of bounds: 4 bytes at shared memory"):
            run("st.shared.u32 [dynamic+64], %r0;", ZEROS, shared_bytes=64)

    def test_misaligned(self) -> None:
        with self.assertRaisesRegex(Trap, "^misaligned: global access of 8 bytes"):
            run("ld.global.u64 %rd5, [%rd2+4];", ZEROS)

    def test_a_lane_that_does_not_load_may_have_any_address(self) -> None:
        body = "setp.lt.u32 %p1, %r0, 3;\nselp.b64 %rd3, %rd2, 12345, %p1;\n@%p1 st.global.u32 [%rd3], 9;"
        self.assertEqual(run(body, ZEROS).tolist(), [9] * 3 + [0] * 61)


LOCAL = """
  .local .align 8 .b8 depot[16];
  mov.u64 %rd5, depot;
  st.local.u32 [%rd5+4], %r0;
  cvta.local.u64 %rd6, %rd5;
  ld.u32 %r10, [%rd6+{offset}];
  st.global.u32 [%rd2], %r10;
"""


class Local(unittest.TestCase):
    """Local memory, which each thread has for itself."""

    def test_each_thread_has_its_own(self) -> None:
        result = run(LOCAL.format(offset=4), ZEROS, threads=64, seed=1)
        self.assertEqual(result.tolist(), list(range(64)))

    def test_beyond_its_end(self) -> None:
        with self.assertRaisesRegex(Trap, "^out of bounds: 4 bytes at local memory \\+ 16 of 16"):
            run(LOCAL.format(offset=16), ZEROS)

    def test_it_begins_as_poison(self) -> None:
        self.assertNotIn(0, run(LOCAL.format(offset=8), ZEROS[:32]).tolist())


class DeviceRaces(unittest.TestCase):
    """Accesses of blocks and warps to device memory."""

    def test_a_read_of_what_another_block_writes(self) -> None:
        body = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 st.global.u32 [%rd2], 1;
  @!%p1 ld.global.u32 %r10, [%rd0];
"""
        for seed in range(4):
            with self.assertRaisesRegex(Trap, "^race: allocation 0 .*not ordered"):
                run(body, ZEROS, blocks=2, seed=seed)

    def test_a_barrier_orders_warps_of_a_block(self) -> None:
        body = "st.global.u32 [%rd2], %r0;\n{}\nxor.b32 %r10, %r0, 32;\nmul.wide.u32 %rd5, %r10, 4;\n"
        body += "add.s64 %rd6, %rd0, %rd5;\nld.global.u32 %r11, [%rd6];"
        run(body.format("bar.sync 0;"), ZEROS, threads=64)
        with self.assertRaisesRegex(Trap, "^race"):
            run(body.format(""), ZEROS, threads=64)

    def test_many_readers_are_no_race(self) -> None:
        run("ld.global.u32 %r10, [%rd0];", ZEROS, threads=64, blocks=3, seed=1)

    def test_a_write_after_reads_of_several_warps(self) -> None:
        body = "ld.global.u32 %r10, [%rd0];\nsetp.eq.u32 %p1, %r0, 33;\n@%p1 st.global.u32 [%rd0], 5;"
        with self.assertRaisesRegex(Trap, "^race: .*write is not ordered with the read"):
            run(body, ZEROS, threads=64)


COPY = """
  mov.u32 %r10, dynamic;
  shl.b32 %r11, %r0, 4;
  add.s32 %r12, %r10, %r11;
  cp.async.cg.shared.global [%r12], [%rd2], 16, {bytes};
  cp.async.commit_group;
  {wait}
  ld.shared.u32 %r13, [%r12];
  st.global.u32 [%rd2], %r13;
"""


class Copies(unittest.TestCase):
    """cp.async."""

    def test_a_waited_for_copy_arrives(self) -> None:
        data = RANDOM.integers(0, 1 << 32, 128, dtype=np.uint32)
        text = COPY.format(bytes=16, wait="cp.async.wait_group 0;")
        np.testing.assert_array_equal(run(text, data, stride=16, shared_bytes=512), data)

    def test_no_bytes_become_zeros(self) -> None:
        data = RANDOM.integers(1, 1 << 32, 128, dtype=np.uint32)
        text = COPY.format(bytes=0, wait="cp.async.wait_all;")
        self.assertEqual(run(text, data, stride=16, shared_bytes=512)[::4].tolist(), [0] * 32)

    def test_a_copy_that_was_not_waited_for(self) -> None:
        for wait in ("", "cp.async.wait_group 1;"):
            with self.assertRaisesRegex(Trap, "^race: shared memory .*cp.async's target"):
                run(COPY.format(bytes=16, wait=wait), np.zeros(128, np.uint32), stride=16, shared_bytes=512)

    def test_another_thread_needs_a_barrier_too(self) -> None:
        text = COPY.replace(
            "ld.shared.u32 %r13, [%r12]",
            "xor.b32 %r14, %r11, 512;\nadd.s32 %r14, %r14, %r10;\n{barrier}\nld.shared.u32 %r13, [%r14]",
        )
        data = RANDOM.integers(0, 1 << 32, 256, dtype=np.uint32)
        options = {"stride": 16, "shared_bytes": 1024, "threads": 64}
        result = run(
            text.format(bytes=16, wait="cp.async.wait_group 0;", barrier="bar.sync 0;"), data, **options
        )
        np.testing.assert_array_equal(
            result.reshape(64, 4)[:, 0], data.reshape(2, 32, 4)[::-1, :, 0].reshape(-1)
        )
        with self.assertRaisesRegex(Trap, "^race: shared memory"):
            run(text.format(bytes=16, wait="cp.async.wait_group 0;", barrier=""), data, **options)


LOAD_MATRICES = """
  mov.u32 %r10, dynamic;
  shl.b32 %r11, %r0, 4;
  add.s32 %r12, %r10, %r11;
  ld.global.v4.u32 {%r13, %r14, %r15, %r16}, [%rd2];
  st.shared.v4.u32 [%r12], {%r13, %r14, %r15, %r16};
  bar.warp.sync -1;
  MATRICES {%r20, %r21, %r22, %r23}, [%r12];
  st.global.v4.u32 [%rd2], {%r20, %r21, %r22, %r23};
"""


class Matrices(unittest.TestCase):
    """ldmatrix and mma."""

    def test_ldmatrix(self) -> None:
        data = RANDOM.integers(0, 1 << 16, 256, dtype=np.uint16)
        matrices = data.reshape(4, 8, 8)
        for name, order in (("", (0, 1, 2)), (".trans", (0, 2, 1))):
            text = LOAD_MATRICES.replace("MATRICES", f"ldmatrix.sync.aligned.m8n8.x4{name}.shared.b16")
            result = run(text, data, stride=16, shared_bytes=512).reshape(32, 4, 2)
            wanted = matrices.transpose(order)
            for lane in range(32):
                for number in range(4):
                    row, column = lane // 4, 2 * (lane % 4)
                    np.testing.assert_array_equal(
                        result[lane, number], wanted[number, row, column : column + 2]
                    )

    def test_mma_has_the_fragments_of_the_isa(self) -> None:
        """Small integers: the result is exact, so only the places of elements matter."""
        a = RANDOM.integers(-8, 8, (16, 16)).astype(np.float16)
        b = RANDOM.integers(-8, 8, (16, 8)).astype(np.float16)
        c = RANDOM.integers(-8, 8, (16, 8)).astype(np.float32)
        registers = np.zeros((32, 16), np.uint32)
        for lane in range(32):
            group, pair = lane // 4, 2 * (lane % 4)
            parts = [a[row : row + 1, k : k + 2] for k in (pair, pair + 8) for row in (group, group + 8)]
            parts += [b[k : k + 2, group : group + 1] for k in (pair, pair + 8)]
            registers[lane, :6] = [
                np.ascontiguousarray(part).reshape(-1).view(np.uint32)[0] for part in parts
            ]
            addend = [c[row, pair + i] for row in (group, group + 8) for i in (0, 1)]
            registers[lane, 8:12] = np.float32(addend).view(np.uint32)
        body = """
  ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd2];
  ld.global.v2.u32 {%r14, %r15}, [%rd2+16];
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd2+32];
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f4, %f5, %f6, %f7}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f0, %f1, %f2, %f3};
  st.global.v4.f32 [%rd2+48], {%f4, %f5, %f6, %f7};
"""
        result = run(body, registers, stride=64)[:, 12:].copy().view(np.float32)
        exact = a.astype(np.float32) @ b.astype(np.float32) + c
        for lane in range(32):
            group, pair = lane // 4, 2 * (lane % 4)
            expected = [exact[row, pair + i] for row in (group, group + 8) for i in (0, 1)]
            self.assertEqual(result[lane].tolist(), expected)

    def test_fragments_cover_each_element_once(self) -> None:
        for name, count in (("a", 256), ("b", 128), ("c", 128)):
            rows, columns = tensor_core.rows_and_columns_of_fragments()[name]
            self.assertEqual(len(set(zip(rows.reshape(-1).tolist(), columns.reshape(-1).tolist()))), count)


class Costs(unittest.TestCase):
    """Bank conflicts and sectors."""

    def passes(self, addresses: list[int], size: int) -> int:
        """Returns the passes that one request of some lanes takes."""
        return int(bank_passes(np.array([addresses], np.int64), size)[0])

    def test_banks(self) -> None:
        self.assertEqual(self.passes([4 * lane for lane in range(32)], 4), 1)
        self.assertEqual(self.passes([8 * lane for lane in range(32)], 4), 2)
        self.assertEqual(self.passes([128 * lane for lane in range(32)], 4), 32)
        self.assertEqual(self.passes([0] * 32, 4), 1)
        self.assertEqual(self.passes([128 * row for row in range(8)], 16), 8)
        self.assertEqual(self.passes([128 * row + 16 * row for row in range(8)], 16), 1)

    def test_sectors(self) -> None:
        for stride, sectors in ((4, 4), (8, 8), (64, 32)):
            counters = Counters()
            counters.count_global(stride * np.arange(32, dtype=np.int64)[None], 4, is_load=True)
            self.assertEqual((counters.load_sectors, counters.load_ideal), (sectors, 4))

    def test_a_launch_counts(self) -> None:
        launch = launch_of("st.global.u32 [%rd2], %r0;", np.zeros(192, np.uint32), threads=96, stride=8)
        launch.run()
        self.assertEqual((launch.counters.store_sectors, launch.counters.store_ideal), (24, 12))


if __name__ == "__main__":
    unittest.main()
