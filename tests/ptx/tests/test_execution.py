# SPDX-License-Identifier: Apache-2.0
"""Tests control flow, barriers, warps' instructions and the order of execution."""

from __future__ import annotations

import unittest
import unittest.mock

import numpy as np

from ptx.errors import PtxError, Trap
from ptx.tests.kernels import launch_of, run

ZEROS = np.zeros(64, np.uint32)


class ControlFlow(unittest.TestCase):
    """Branches, loops and exits of single lanes."""

    def test_lanes_take_their_own_paths_and_meet_again(self) -> None:
        body = """
  mov.u32 %r10, 0;
  mov.u32 %r11, 0;
$again:
  setp.ge.u32 %p1, %r10, %r0;
  @%p1 bra $done;
  add.s32 %r11, %r11, %r10;
  add.s32 %r10, %r10, 1;
  bra.uni $again;
$done:
  shfl.sync.bfly.b32 %r12, %r11, 1, 31, -1;
  st.global.u32 [%rd2], %r12;
"""
        sums = [t * (t - 1) // 2 for t in range(32)]
        self.assertEqual(run(body, ZEROS[:32]).tolist(), [sums[t ^ 1] for t in range(32)])

    def test_lanes_that_exit_write_nothing(self) -> None:
        body = "setp.ge.u32 %p1, %r0, 20;\n@%p1 ret;\nst.global.u32 [%rd2], 7;"
        self.assertEqual(run(body, ZEROS[:32]).tolist(), [7] * 20 + [0] * 12)

    def test_an_endless_loop_is_reported(self) -> None:
        with (
            unittest.mock.patch("ptx.crew._MOST_BRANCHES", 100),
            self.assertRaisesRegex(Trap, "endless loop"),
        ):
            run("$again:\nbra.uni $again;", ZEROS)

    def test_an_unwritten_register_is_poison(self) -> None:
        self.assertNotIn(0, run("st.global.u32 [%rd2], %r20;", ZEROS[:32]).tolist())

    def test_an_unknown_instruction_names_itself(self) -> None:
        with self.assertRaisesRegex(PtxError, "unknown instruction 'frobnicate.u32 %r10, %r0'"):
            run("frobnicate.u32 %r10, %r0;", ZEROS)

    def test_blocks_and_threads_have_their_numbers(self) -> None:
        body = "mad.lo.u32 %r10, %r1, 1000, %r0;\nst.global.u32 [%rd2], %r10;"
        result = run(body, np.zeros(192, np.uint32), threads=64, blocks=3, seed=5)
        self.assertEqual(
            result.tolist(), [1000 * block + thread for block in range(3) for thread in range(64)]
        )


EXCHANGE = """
  mov.u32 %r10, dynamic;
  shl.b32 %r11, %r0, 2;
  add.s32 %r12, %r10, %r11;
  xor.b32 %r13, %r11, 128;
  add.s32 %r14, %r10, %r13;
  st.shared.u32 [%r12], %r0;
  {barrier}
  ld.shared.u32 %r15, [%r14];
  st.global.u32 [%rd2], %r15;
"""


class Barriers(unittest.TestCase):
    """bar.sync and bar.warp.sync."""

    def test_a_barrier_orders_warps_in_any_schedule(self) -> None:
        for seed in range(6):
            result = run(
                EXCHANGE.format(barrier="bar.sync 0;"), ZEROS, threads=64, shared_bytes=256, seed=seed
            )
            self.assertEqual(result.tolist(), [t ^ 32 for t in range(64)])

    def test_without_it_there_is_a_race_in_any_schedule(self) -> None:
        for seed in range(6):
            with self.assertRaisesRegex(Trap, "^race: shared memory"):
                run(EXCHANGE.format(barrier=""), ZEROS, threads=64, shared_bytes=256, seed=seed)

    def test_a_warp_barrier_does_not_order_warps(self) -> None:
        with self.assertRaisesRegex(Trap, "^race: shared memory"):
            run(EXCHANGE.format(barrier="bar.warp.sync -1;"), ZEROS, threads=64, shared_bytes=256)

    def test_a_warp_barrier_orders_lanes(self) -> None:
        body = EXCHANGE.replace("128", "4")
        result = run(body.format(barrier="bar.warp.sync -1;"), ZEROS, threads=64, shared_bytes=256)
        self.assertEqual(result.tolist(), [t ^ 1 for t in range(64)])
        with self.assertRaisesRegex(Trap, "^race: shared memory"):
            run(body.format(barrier=""), ZEROS, threads=64, shared_bytes=256)

    def test_part_of_a_warp_at_a_barrier(self) -> None:
        body = "setp.lt.u32 %p1, %r0, 7;\n@%p1 bra $over;\nbar.sync 0;\n$over:\nst.global.u32 [%rd2], 1;"
        with self.assertRaisesRegex(Trap, "^divergent barrier: only some lanes"):
            run(body, ZEROS, threads=64)

    def test_warps_at_different_barriers(self) -> None:
        body = "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra $other;\nbar.sync 0;\nret;\n$other:\nbar.sync 0;"
        with self.assertRaisesRegex(Trap, "^divergent barrier: warps of block 0"):
            run(body, ZEROS, threads=64)


class Warps(unittest.TestCase):
    """Shuffles and votes."""

    def shuffled(self, mode: str, distance: int, limits: int) -> list[int]:
        """Returns the lane that each lane reads from, or 99 where the predicate is false."""
        body = f"""
  shfl.sync.{mode}.b32 %r10|%p1, %r0, {distance}, {limits}, -1;
  selp.b32 %r11, %r10, 99, %p1;
  st.global.u32 [%rd2], %r11;
"""
        return run(body, ZEROS[:32]).tolist()

    def test_modes(self) -> None:
        self.assertEqual(self.shuffled("bfly", 5, 31), [t ^ 5 for t in range(32)])
        self.assertEqual(self.shuffled("up", 3, 0), [t - 3 if t >= 3 else 99 for t in range(32)])
        self.assertEqual(self.shuffled("down", 3, 31), [t + 3 if t < 29 else 99 for t in range(32)])
        self.assertEqual(self.shuffled("idx", 4, 31), [4] * 32)

    def test_segments(self) -> None:
        # c = ((32 - width) << 8) | 31 for segments of `width` lanes
        self.assertEqual(self.shuffled("idx", 1, (24 << 8) | 31), [t // 8 * 8 + 1 for t in range(32)])
        self.assertEqual(self.shuffled("up", 1, 24 << 8), [t - 1 if t % 8 else 99 for t in range(32)])

    def test_absent_lanes(self) -> None:
        body = "setp.lt.u32 %p1, %r0, 9;\n@%p1 bra $over;\n"
        body += "shfl.sync.bfly.b32 %r10, %r0, 1, 31, -1;\n$over:\nret;"
        with self.assertRaisesRegex(
            Trap, "^absent lanes: lane 9 names the lanes 0xffffffff, but 0xfffffe00 arrive"
        ):
            run(body, ZEROS)

    def test_votes(self) -> None:
        body = """
  setp.lt.u32 %p1, %r0, 5;
  vote.sync.ballot.b32 %r10, %p1, -1;
  vote.sync.any.pred %p2, %p1, -1;
  vote.sync.all.pred %p3, !%p1, -1;
  selp.b32 %r11, 256, 0, %p2;
  selp.b32 %r12, 512, 0, %p3;
  add.s32 %r10, %r10, %r11;
  add.s32 %r10, %r10, %r12;
  st.global.u32 [%rd2], %r10;
"""
        self.assertEqual(run(body, ZEROS[:32]).tolist(), [31 + 256] * 32)


class Schedules(unittest.TestCase):
    """Seeds change the order of warps, and nothing else."""

    def test_a_seed_makes_several_crews(self) -> None:
        launch = launch_of(
            "st.global.u32 [%rd2], %r0;", np.zeros(256, np.uint32), threads=64, blocks=4, seed=3
        )
        self.assertGreater(len(launch._deal([0, 1, 2, 3])), 1)
        launch.run()
        self.assertEqual(launch.memory.bytes[:1024].view(np.uint32).tolist(), list(range(64)) * 4)

    def test_a_write_that_depends_on_the_order_is_a_race(self) -> None:
        with self.assertRaisesRegex(
            Trap, "^race: allocation .*block 0 thread 0, by block 1 thread 0|^race: allocation"
        ):
            run("st.global.u32 [%rd0], %r1;", ZEROS, blocks=2)


if __name__ == "__main__":
    unittest.main()
