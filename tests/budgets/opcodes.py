# SPDX-License-Identifier: Apache-2.0
"""Says which pipe of a multiprocessor executes an instruction, and what it moves.

The classes follow the pipes of Nsight Compute's Profiling Guide and the throughputs of the CUDA Programming
Guide. Some instructions run in either of two pipes. Each has one class here. So the figures compare versions
of a kernel and do not predict its time.
"""

from __future__ import annotations

from disassembly import Instruction

PIPES = {
    "tensor": "HMMA",
    "fma": "FADD FADD2 FFMA FFMA2 FMUL FMUL2 HADD2 HFMA2 HMUL2",
    "imad": "IMAD",
    "fp64": "DADD DFMA DMUL DSETP",
    "alu": "BMSK CS2R F2FP FCHK FMNMX FMNMX3 FSEL FSETP HMNMX2 I2FP IABS IADD IADD3 IMNMX ISETP LEA LOP3 MOV "
    "P2R PLOP3 PRMT R2P SEL SGXT SHF SHL SHR VIADD VIADDMNMX VIMNMX VIMNMX3 VOTE",
    "xu": "BREV F2F F2I FLO FRND I2F MUFU POPC",
    "shared": "ATOMS LDS LDSM MATCH SHFL STS STSM",
    "global": "ATOM ATOMG LD LDG LDGSTS RED REDG ST STG",
    "local": "LDL STL",
    "uniform": "LDC LDCU R2UR REDUX S2R S2UR VOTEU",  # and all that begin with U
    "control": "BMOV BRA BREAK BRX BRXU BSSY BSYNC CALL DEPBAR ENDCOLLECTIVE EXIT LDGDEPBAR NOP RET WARPSYNC "
    "YIELD",
    "barrier": "BAR MEMBAR",
}
PIPE_OF = {opcode: pipe for pipe, opcodes in PIPES.items() for opcode in opcodes.split()}

# An access of a warp to shared memory moves 128 bytes a cycle if no two lanes need the same bank.
SHARED_BYTES_PER_CYCLE = 128
WARP_SIZE = 32


def pipe_of(instruction: Instruction) -> str:
    """Returns the instruction's pipe. An instruction that never runs takes only an issue slot."""
    if instruction.never_runs:
        return "control"
    return PIPE_OF.get(instruction.base, "uniform" if instruction.base.startswith("U") else "")


def width_bits(instruction: Instruction) -> int:
    """Returns the bits that a lane loads or stores."""
    widths = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
    for modifier in instruction.modifiers:
        if modifier in widths:
            return widths[modifier]
    return 32


def global_bytes(instruction: Instruction) -> float:
    """Returns the bytes of global memory that a lane reads or writes."""
    if instruction.never_runs or instruction.base not in ("LD", "LDG", "LDGSTS", "ST", "STG"):
        return 0.0
    return width_bits(instruction) / 8


def shared_cycles(instruction: Instruction) -> float:
    """Returns the cycles of shared memory that a warp's instruction takes without bank conflicts.

    LDGSTS writes what it loads to shared memory. A shuffle moves 4 bytes a lane through the same crossbar.
    """
    if instruction.never_runs:
        return 0.0
    if instruction.base in ("LDSM", "STSM"):
        matrices = next((int(m) for m in instruction.modifiers if m in ("2", "4")), 1)
        return float(matrices)
    if instruction.base in ("LDS", "STS", "LDGSTS"):
        return max(1.0, width_bits(instruction) / 8 * WARP_SIZE / SHARED_BYTES_PER_CYCLE)
    return 1.0 if instruction.base in ("SHFL", "ATOMS") else 0.0
