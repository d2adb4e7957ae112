# SPDX-License-Identifier: Apache-2.0
"""python3 -m ptx: replays recorded launches on nvcc's PTX, and prints a table of kernels.

scripts/check_ptx.sh records the launches, compiles the PTX and calls it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from ptx.counters import Counters
from ptx.library import Library, plain_symbol
from ptx.recording import Recording
from ptx.replay import Verdict, choose, find_recordings, open_library, replay_kernel

_NOISE = re.compile(r"lockstep::|\(anonymous namespace\)::|cuda::|attention::")
_HEADER = "kernels  equal/cases verdict       seconds  banks ldmatrix  loads stores  kernels of"


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m ptx", description=__doc__)
    parser.add_argument(
        "--ptx", type=Path, required=True, help="folder of .ptx files, named like the .cu files"
    )
    parser.add_argument("--records", type=Path, required=True, help="folder of recorded launches")
    parser.add_argument(
        "--all", action="store_true", help="replay all recorded launches, not one of each kernel"
    )
    parser.add_argument(
        "--every-kernel", action="store_true", help="fail if a kernel of the PTX has no recorded launch"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="0 runs all warps together, others in random orders"
    )
    parser.add_argument(
        "--kernels", default="", help="replay only kernels whose readable name matches this regex"
    )
    parser.add_argument(
        "--tolerance", type=float, default=0.0, help="accept this error of approximate kernels"
    )
    parser.add_argument(
        "--most-lanes", type=int, default=20_000, help="prefer cases with at most this many threads"
    )
    parser.add_argument("--part", default="1/1", help="i/n replays each n-th kernel, beginning with the i-th")
    parser.add_argument("--each", action="store_true", help="print a line for each kernel of a template")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    return parser.parse_args(arguments)


def readable_names(symbols: list[str]) -> list[str]:
    """Demangles names, and removes namespaces and parameters."""
    process = subprocess.run(
        ["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True
    )
    return [_shorten(line) for line in process.stdout.splitlines()]


def _shorten(name: str) -> str:
    name = (
        _NOISE.sub("", name).replace("__nv_bfloat16", "bf16").replace("__half", "f16").replace("float", "f32")
    )
    name = re.sub(r"\((Gelu|Operation|Form|bool)\)", "", name)
    depth = 0
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:at].removeprefix("void ")
    return name


def ratio(actual: int, ideal: int) -> str:
    """Returns what accesses cost as a multiple of the least possible."""
    return f"{actual / ideal:.2f}" if ideal else "-"


@dataclass
class Row:
    """The sums of one line: kernels of one template, or one of them."""

    kernels: int = 0
    cases: int = 0
    equal_cases: int = 0
    seconds: float = 0.0
    outcome: str = "equal"
    counters: Counters = field(default_factory=Counters)

    def print(self, name: str) -> None:
        """Prints the line."""
        costs = self.counters
        print(
            f"{self.kernels:>7} {self.equal_cases:>6}/{self.cases:<5} {self.outcome:<13} {self.seconds:7.2f} "
            f"{ratio(costs.shared_passes, costs.shared_ideal):>6} "
            f"{ratio(costs.matrix_passes, costs.matrix_ideal):>8} "
            f"{ratio(costs.load_sectors, costs.load_ideal):>6} "
            f"{ratio(costs.store_sectors, costs.store_ideal):>6}  {name}",
            flush=True,
        )


class Report:
    """Prints a line for the kernels of each template, or for each kernel, and counts the outcomes."""

    def __init__(self, tolerance: float, prints_each: bool) -> None:
        self._tolerance = tolerance
        self._prints_each = prints_each
        self._rows: dict[str, Row] = {}
        self.total = Row()
        self.equal_kernels = 0
        self.approximate: list[str] = []
        self.failures: list[str] = []

    def add(self, name: str, verdicts: list[Verdict]) -> None:
        """Adds the replays of one kernel, whose name begins with its file."""
        title = name if self._prints_each else name.partition("<")[0]
        # Kernels come in the order of files. So the lines of a file are complete when the next one begins.
        if self._rows and next(iter(self._rows)).split()[0] != name.split()[0]:
            self.flush()
        equal = sum(verdict.agrees for verdict in verdicts)
        self.equal_kernels += equal == len(verdicts)
        outcome = self._judge(name, verdicts)
        for row in (self._rows.setdefault(title, Row()), self.total):
            row.kernels += 1
            row.cases += len(verdicts)
            row.equal_cases += equal
            row.outcome = outcome if outcome != "equal" else row.outcome
            for verdict in verdicts:
                row.seconds += verdict.seconds
                row.counters.add(verdict.counters)

    def flush(self) -> None:
        """Prints the lines of a file."""
        for title, row in self._rows.items():
            row.print(title)
        self._rows = {}

    def _judge(self, name: str, verdicts: list[Verdict]) -> str:
        wrong = [verdict for verdict in verdicts if not verdict.agrees]
        if not wrong:
            return "equal"
        worst = max(wrong, key=lambda verdict: verdict.error)
        if worst.approximate and worst.error <= self._tolerance:
            self.approximate.append(name)
            return f"within {worst.error:.0e}"
        self.failures.append(f"{name} ({worst.recording.path.name}): {worst.problem}")
        return "DIFFERENT"


def main(arguments: list[str]) -> int:
    """Replays launches and returns the exit status."""
    options = parse_arguments(arguments)
    begin = time.perf_counter()
    library = Library(options.ptx)
    found = find_recordings(options.records)
    index, count = (int(number) for number in options.part.split("/"))
    kernels = list(found)[index - 1 :: count]
    names = [
        f"{file} {name}"
        for (file, _), name in zip(kernels, readable_names([symbol for _, symbol in kernels]))
    ]
    wanted = [(key, name) for key, name in zip(kernels, names) if re.search(options.kernels, name)]
    report = Report(options.tolerance, options.each)
    print(_HEADER)
    tasks = [(key, paths(found[key], options), options.seed) for key, _ in wanted]
    try:
        with ProcessPoolExecutor(options.jobs, initializer=open_library, initargs=(options.ptx,)) as pool:
            for (_, name), verdicts in zip(wanted, pool.map(replay_kernel, tasks)):
                report.add(name, verdicts)
    except BrokenProcessPool:
        report.failures.append("a process that replayed kernels was killed, perhaps for lack of memory")
    report.flush()
    missing = print_missing(library, found)
    print_summary(report, time.perf_counter() - begin)
    return 1 if report.failures or (missing and options.every_kernel) else 0


def paths(recordings: list[Recording], options: argparse.Namespace) -> list[Path]:
    """Returns the files of the launches to replay."""
    chosen = recordings if options.all else [choose(recordings, options.most_lanes)]
    return [recording.path for recording in chosen]


def print_missing(library: Library, found: dict[tuple[str, str], list[Recording]]) -> int:
    """Prints the kernels of the PTX that no recorded launch covers. Returns their number."""
    recorded = {(file, plain_symbol(symbol)) for file, symbol in found}
    missing = [(file, symbol) for file in library.files for symbol in library.kernels(file)]
    missing = [key for key in missing if key not in recorded]
    if missing:
        print(f"kernels without a recorded launch: {len(missing)}")
        for (file, _), name in zip(missing, readable_names([symbol for _, symbol in missing])):
            print(f"  {file} {name}")
    return len(missing)


def print_summary(report: Report, seconds: float) -> None:
    """Prints the failures and the totals."""
    for failure in report.failures:
        print(f"FAILED {failure}")
    print(
        f"ptx: {report.total.kernels} kernels, {report.equal_kernels} equal in bits, "
        f"{len(report.approximate)} within the tolerance, {len(report.failures)} failed; "
        f"{report.total.cases} cases, {report.total.equal_cases} equal in bits; {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
