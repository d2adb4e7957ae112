# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of hot kernels, and compares the figures with src/kernels/cuda/budgets.csv.

scripts/check_budgets.sh runs it. docs/kernels/budgets.md says what the figures are.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cubins import BudgetError, cubins_of
from disassembly import Cubin, Instruction, demangle, disassemble
from hot_kernels import HOT_KERNELS, HotKernel
from occupancy import blocks_of
from opcodes import PIPES, global_bytes, pipe_of, shared_cycles, width_bits
from regions import counted_region

COUNTED_PIPES = [pipe for pipe in PIPES if pipe != "local"]
FEWER_IS_BETTER = ["slots", *COUNTED_PIPES, "shared_cycles", "spill_bytes"]
MORE_IS_BETTER = ["load_bits", "store_bits", "blocks"]
KEYS = ["file", "kernel", "target"]
COLUMNS = [
    *KEYS,
    "unit",
    "units",
    *FEWER_IS_BETTER[:-1],
    *MORE_IS_BETTER[:2],
    "registers",
    "spill_bytes",
    "blocks",
]
UNIT_BYTES = 16
TOLERANCE = 0.03
ROUNDING = 1e-6  # of binary fractions; the table has three decimals

Row = dict[str, str]


@dataclass(frozen=True)
class Resources:
    """What ptxas reported for a kernel."""

    registers: int
    shared_bytes: int
    spill_bytes: int


def read_resources(path: Path) -> dict[tuple[str, str, str], Resources]:
    """Reads what scripts/check_kernels.sh measured, by file, kernel and target."""
    if not path.exists():
        raise BudgetError(f"{path} is missing: run scripts/check_kernels.sh")
    result = {}
    with path.open() as lines:
        for file, kernel, target, registers, shared, stack, stores, loads, *_ in csv.reader(lines):
            spills = max(int(stack), int(stores) + int(loads))
            result[file, kernel, target] = Resources(int(registers), int(shared), spills)
    return result


def figures_of(code: list[Instruction], kernel: HotKernel, target: str, resources: Resources) -> Row:
    """Returns the row of a kernel for a target."""
    region = counted_region(code, kernel)
    pipes = Counter(map(pipe_of, region))
    if "" in pipes:
        unknown = next(i for i in region if not pipe_of(i))
        raise BudgetError(
            f"{kernel.name} for {target} has the unknown opcode {unknown.opcode}: "
            "add it to its pipe in tests/budgets/opcodes.py"
        )
    unit, units = {
        "products": ("HMMA", float(kernel.products)),
        "sums": ("FFMA", float(sum(i.base == "FFMA" for i in region))),
    }.get(kernel.kind, ("16 bytes", sum(map(global_bytes, region)) / UNIT_BYTES))
    narrowest = {
        name: min((width_bits(i) for i in region if i.base in opcodes and not i.never_runs), default=0)
        for name, opcodes in (("load_bits", ("LDG", "LDGSTS")), ("store_bits", ("STG",)))
    }
    shared_bytes = resources.shared_bytes + kernel.dynamic_shared_bytes
    counted = {"slots": len(region), **{pipe: pipes[pipe] for pipe in COUNTED_PIPES}}
    counted["shared_cycles"] = sum(map(shared_cycles, region))
    return {
        "file": kernel.file,
        "kernel": kernel.name,
        "target": target,
        "unit": unit,
        "units": f"{units:g}",
        **{name: f"{count / units:.3f}" for name, count in counted.items()},
        **{name: str(bits) for name, bits in narrowest.items()},
        "registers": str(resources.registers),
        "spill_bytes": str(resources.spill_bytes),
        "blocks": str(blocks_of(target, kernel.threads, resources.registers, shared_bytes)),
    }


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Returns the rows of all hot kernels for all targets that were compiled, sorted."""
    resources = read_resources(arguments.build / "measured.csv")
    names = {target.rstrip("a"): target for _, _, target in resources}
    objects = arguments.build / "src/kernels/CMakeFiles/lockstep_kernels.dir/cuda"

    def rows_of(file: str) -> list[Row]:
        rows = []
        for cubin in cubins_of(objects / f"{file}.o"):
            disassembled = disassemble(arguments.nvdisasm, cubin)
            rows += rows_of_cubin(file, disassembled, names[disassembled.target], resources)
        return rows

    files = sorted({kernel.file for kernel in HOT_KERNELS})
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = [row for some in pool.map(rows_of, files) for row in some]
    return sorted(rows, key=key_of)


def rows_of_cubin(
    file: str, cubin: Cubin, target: str, resources: dict[tuple[str, str, str], Resources]
) -> list[Row]:
    """Returns the rows of the hot kernels of one cubin."""
    short = demangle(list(cubin.functions))
    code = {short[name]: instructions for name, instructions in cubin.functions.items()}
    rows = []
    for kernel in HOT_KERNELS:
        if kernel.file != file:
            continue
        if kernel.name not in code:
            raise BudgetError(
                f"{file} has no kernel {kernel.name} for {target}: see tests/budgets/hot_kernels.py"
            )
        rows.append(figures_of(code[kernel.name], kernel, target, resources[file, kernel.name, target]))
    return rows


def key_of(row: Row) -> tuple[str, ...]:
    """Returns what identifies a row."""
    return tuple(row[key] for key in KEYS)


def describe(row: Row) -> str:
    """Names a row in a message."""
    return f"{row['kernel']} ({row['file']}) for {row['target']}"


def compare(old: list[Row], new: list[Row]) -> tuple[list[str], list[str]]:
    """Returns messages about figures that are worse or better than the table by more than the tolerance."""
    worse, better = [], []
    known = {key_of(row): row for row in old}
    measured = {row["target"] for row in new}
    for row in new:
        before = known.pop(key_of(row), None)
        if before is None:
            worse.append(f"{describe(row)} is not in the table")
            continue
        for figure in FEWER_IS_BETTER + MORE_IS_BETTER:
            was, now = float(before[figure]), float(row[figure])
            change = was - now if figure in MORE_IS_BETTER else now - was
            if abs(change) > TOLERANCE * was + ROUNDING:
                (worse if change > 0 else better).append(f"{describe(row)}: {figure} {was:g} -> {now:g}")
    worse += [
        f"{describe(row)} is in the table, but was not measured"
        for row in known.values()
        if row["target"] in measured
    ]
    return worse, better


def read_table(path: Path) -> list[Row]:
    """Reads the table. It has no rows if there is no file."""
    return list(csv.DictReader(path.open())) if path.exists() else []


def table_of(rows: list[Row]) -> str:
    """Returns the table as text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def main() -> int:
    """Runs the check, or writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build", type=Path, required=True, help="the folder that scripts/check_kernels.sh built"
    )
    parser.add_argument("--nvdisasm", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--update", action="store_true", help="write the table")
    arguments = parser.parse_args()
    try:
        rows = measure(arguments)
    except BudgetError as error:
        print(f"check_budgets: {error}", file=sys.stderr)
        return 1
    measured = {row["target"] for row in rows}
    print(f"check_budgets: {len(rows)} loops for {' '.join(sorted(measured))}")
    old = read_table(arguments.table)
    worse, better = compare(old, rows)
    if arguments.update:
        kept = [row for row in old if row["target"] not in measured]
        arguments.table.write_text(table_of(sorted(kept + rows, key=key_of)))
        print(f"check_budgets: wrote {arguments.table}: {len(worse)} figures worse, {len(better)} better")
        return 0
    print(*(f"worse: {message}" for message in worse), sep="\n", end="\n" if worse else "", file=sys.stderr)
    print(*(f"better: {message}" for message in better), sep="\n", end="\n" if better else "")
    if worse or better:
        print("scripts/check_budgets.sh --update writes a new table")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
