# SPDX-License-Identifier: Apache-2.0
"""Tests the reading of PTX and of recorded launches, and the comparison of the two witnesses."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import struct
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from ptx.__main__ import main
from ptx.errors import PtxError
from ptx.library import Library, plain_symbol
from ptx.operands import Address, Constant, Register, Vector, parse_operand
from ptx.parser import Module, decode_instruction
from ptx.recording import OTHER_POISON, read_recording
from ptx.replay import Verdict, choose, find_recordings, replay

ADDRESS = 0x7F12_0000_0000
SYMBOL = "_ZN12_GLOBAL__N_16kernelEPj"
NVCC_SYMBOL = "_ZN38_GLOBAL__N__2ab92336_6_one_cu_4d3827376kernelEPj"
PTX = f"""
.version 9.0
.target sm_90a
.address_size 64
.entry {NVCC_SYMBOL}(
	.param .u64 {NVCC_SYMBOL}_param_0
)
{{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [{NVCC_SYMBOL}_param_0];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	BODY
	ret;
}}
"""
COPY = "ld.global.u32 %r2, [%rd3]; st.global.u32 [%rd3+128], %r2;"


def packed(text: bytes) -> bytes:
    """Returns a text after its length."""
    return struct.pack("<Q", len(text)) + text


def write_recording(
    path: Path, before: np.ndarray, after: np.ndarray, unwritten: list[int], threads: int = 32
) -> None:
    """Writes a launch of one block with one allocation. `unwritten` lists groups of 16 bytes."""
    bits = np.zeros((before.nbytes + 15) // 16, np.uint8)
    bits[unwritten] = 1
    data = b"LOCKREC1" + struct.pack("<6IQ", 1, 1, 1, threads, 1, 1, 0)
    data += packed(b"one.cu") + packed(SYMBOL.encode()) + packed(struct.pack("<Q", ADDRESS))
    data += struct.pack("<QQQBB", 1, ADDRESS, before.nbytes, 0, 1)
    data += before.tobytes() + np.packbits(bits, bitorder="little").tobytes() + after.tobytes()
    path.write_bytes(data)


def killed(_: object) -> None:
    """Ends this process as the kernel does when the memory is full."""
    os.kill(os.getpid(), signal.SIGKILL)


class Replays(unittest.TestCase):
    """A kernel that copies 32 words behind themselves."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.before = np.full(64, 0xFFFFFFFF, np.uint32)
        self.before[:32] = np.arange(32)
        self.after = np.concatenate([self.before[:32], self.before[:32]])

    def replay(self, body: str = COPY, unwritten: list[int] | None = None) -> Verdict:
        """Replays the recorded launch with a kernel of the given body."""
        (self.folder / "one.ptx").write_text(PTX.replace("BODY", body))
        path = self.folder / "1_0.launch"
        write_recording(path, self.before, self.after, list(range(8, 16)) if unwritten is None else unwritten)
        library = Library(self.folder)
        recording = read_recording(path)
        return replay(recording, library, library.entry(recording.file, recording.symbol), 1)

    def test_equal_bytes_agree(self) -> None:
        self.assertEqual(self.replay().problem, "")

    def replay_all(self, *options: str) -> tuple[int, str]:
        """Returns the exit status and the output of the program."""
        self.replay()
        arguments = ["--ptx", str(self.folder), "--records", str(self.folder), "--jobs", "1", *options]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = main(arguments)
        return status, printed.getvalue()

    def test_the_program_counts_equal_kernels(self) -> None:
        status, printed = self.replay_all()
        self.assertEqual(status, 0)
        self.assertIn("ptx: 1 kernels, 1 equal in bits", printed)

    def test_the_program_fails_if_a_kernel_differs(self) -> None:
        self.after[40] ^= 1 << 9
        status, printed = self.replay_all()
        self.assertEqual(status, 1)
        self.assertIn("FAILED one.cu", printed)

    def test_the_program_can_demand_a_launch_of_every_kernel(self) -> None:
        (self.folder / "two.ptx").write_text(PTX.replace("BODY", ""))
        self.assertEqual(self.replay_all()[0], 0)
        status, printed = self.replay_all("--every-kernel")
        self.assertEqual(status, 1)
        self.assertIn("kernels without a recorded launch: 1\n  two.cu", printed)

    def test_the_program_fails_if_one_of_its_processes_is_killed(self) -> None:
        with mock.patch("ptx.__main__.replay_kernel", killed):
            status, printed = self.replay_all()
        self.assertEqual(status, 1)
        self.assertIn("FAILED a process that replayed kernels was killed", printed)

    def test_one_other_bit_does_not(self) -> None:
        self.after[40] ^= 1 << 9
        verdict = self.replay()
        self.assertEqual(
            verdict.problem,
            "different bits: 1 of 256 bytes of allocation 0 differ, first at + 160: "
            "interpreted 08000000, emulated 08020000",
        )

    def test_a_result_that_depends_on_unwritten_memory_differs(self) -> None:
        body = "ld.global.u32 %r2, [%rd3]; st.global.u32 [%rd3], %r2;"
        self.before[:] = self.after[:] = 0xFFFFFFFF
        self.assertEqual(self.replay(body, unwritten=list(range(8, 16))).problem, "")
        copied = COPY.replace("128", "0").replace("[%rd3]; st", "[%rd3+128]; st")
        self.assertRegex(
            self.replay(copied, unwritten=list(range(8, 16))).problem, "^different bits: 128 of 256"
        )

    def test_a_result_that_was_not_written_differs(self) -> None:
        self.assertRegex(self.replay("").problem, "^different bits: 128 of 256 bytes")

    def test_unwritten_bytes_have_another_poison(self) -> None:
        self.replay()
        memory = read_recording(self.folder / "1_0.launch").memory()
        self.assertEqual(set(memory.bytes[128:256].tolist()), {int(OTHER_POISON)})

    def test_the_largest_case_below_the_limit_is_chosen(self) -> None:
        for number, threads in enumerate((32, 64, 96)):
            write_recording(self.folder / f"2_{number}.launch", self.before, self.after, [], threads)
        (recordings,) = find_recordings(self.folder).values()
        self.assertEqual([choose(recordings, most).lanes for most in (10, 70, 1000)], [32, 64, 96])

    def test_a_cut_file_is_an_error(self) -> None:
        self.replay()
        path = self.folder / "1_0.launch"
        path.write_bytes(path.read_bytes()[:-1])
        with self.assertRaisesRegex(PtxError, "ends too early"):
            read_recording(path)


class Names(unittest.TestCase):
    """Mangled names of clang and nvcc."""

    def test_namespaces_become_alike(self) -> None:
        self.assertEqual(plain_symbol(NVCC_SYMBOL), SYMBOL)
        self.assertEqual(plain_symbol(SYMBOL), SYMBOL)

    def test_digits_before_the_namespace_stay(self) -> None:
        self.assertEqual(
            plain_symbol("_ZN1a2b138_GLOBAL__N__2ab92336_6_one_cu_4d3827371cE"), "_ZN1a2b112_GLOBAL__N_11cE"
        )

    def test_an_unknown_kernel_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "one.ptx").write_text(PTX.replace("BODY", ""))
            with self.assertRaisesRegex(PtxError, "one.cu has no kernel _Zother"):
                Library(Path(folder)).entry("one.cu", "_Zother")


class Parsing(unittest.TestCase):
    """Texts of instructions and of modules."""

    def test_operands(self) -> None:
        self.assertEqual(parse_operand("[%rd1+-40]"), Address("%rd1", -40))
        self.assertEqual(parse_operand("0f3F800000").to_array("f32")[0], np.float32(1))
        self.assertEqual(parse_operand("-1"), Constant(-1))
        self.assertEqual(parse_operand("{%r1, %r2}"), Vector((Register("%r1"), Register("%r2"))))
        self.assertEqual(parse_operand("!%p1"), Register("%p1", is_negated=True))
        with self.assertRaisesRegex(PtxError, "unknown operand"):
            parse_operand("a b")

    def test_guards_and_modifiers(self) -> None:
        what = decode_instruction("@!%p3 ld.global.cs.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1]")
        assert what.guard is not None
        self.assertEqual((what.guard.register, what.guard.is_negated), ("%p3", True))
        self.assertEqual(
            (what.opcode, what.modifiers, what.type), ("ld", ("global", "cs", "v4", "u32"), "u32")
        )

    def test_parameters_have_their_alignment(self) -> None:
        text = ".target sm_80\n.entry k(.param .u8 a, .param .align 8 .b8 b[12], .param .f32 c)\n{\nret;\n}\n"
        entry = Module(text).entry("k")
        offsets = [parameter.offset for parameter in entry.parameters.values()]
        self.assertEqual((offsets, entry.parameter_bytes), ([0, 8, 20], 24))

    def test_scopes_of_inline_assembly(self) -> None:
        body = "{\n.reg .b32 %r<3>;\n{ mov.u32 %r1, 5;}\n\n{ mov.u32 %r2, 6;\n}\n$L: ret;\n}\n"
        text = ".target sm_80\n.entry k()\n" + body
        entry = Module(text).entry("k")
        self.assertEqual([what.opcode for what in entry.instructions], ["mov", "mov", "ret"])
        self.assertEqual(entry.labels, {"$L": 2})


if __name__ == "__main__":
    unittest.main()
