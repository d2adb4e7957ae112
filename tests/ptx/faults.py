# SPDX-License-Identifier: Apache-2.0
"""python3 -m ptx.faults: plants bugs in kernels, compiles them to PTX and replays launches that were recorded
without the bug.

The bugs are those of tests/emulator/planted_bugs.cmake, which the emulator must notice too, and one that only
the interpreter sees. scripts/check_ptx.sh --faults calls it.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ptx.errors import PtxError
from ptx.replay import Verdict, find_recordings, open_library, replay_kernel

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "src/kernels/cuda"
# How the interpreter must name each bug.
NAMES = {
    "removed_barrier": "race: shared memory",
    "removed_warp_barrier": "race: shared memory",
    "removed_wait": "race: .*cp.async's target",
    "wait_for_older_group": "race: .*cp.async's target|cp.async: .*without a wait",
    "removed_barrier_between_heads": "race: ",
    "mask_off_by_one": "different bits",
    "wrong_lane": "different bits",
    "unwritten_output": "different bits",
    "barrier_in_a_branch": "divergent barrier|absent lanes",
    "beyond_the_end": "out of bounds: 16 bytes",
    "removed_slice_barrier": "race: shared memory",
    "changed_swizzle": "different bits",
    "swapped_fragment_rows": "different bits",
    "inverted_predicate": "different bits|out of bounds",
    "reference_never_raised": "different bits",
    "reference_raised_by_other_rows": "different bits",
    "no_swizzle": "bank conflicts: ldmatrix",
}


@dataclass(frozen=True)
class Bug:
    """A bug: `text` becomes `becomes` in a file, and `builds` is the .cu file that is compiled with it."""

    name: str
    file: str
    builds: str
    text: str
    becomes: str


# With chunks in their own places results are right, but each column of chunks has one group of banks.
NO_SWIZZLE = Bug(
    "no_swizzle",
    "attention_tile.cuh",
    "attention_forward.cu",
    "const int key = permuted == 8 ? row & 7",
    "const int key = permuted == 8 ? 0",
)
_BUG = re.compile(
    r"^lockstep_planted_bug\((\w+) IN (\S+)(?: BUILDS (\S+))?\s+"
    r'TEXT "((?:[^"\\]|\\.)*)"\s+BECOMES "((?:[^"\\]|\\.)*)"',
    re.MULTILINE,
)


def read_bugs(path: Path) -> list[Bug]:
    """Reads the bugs that are planted for the emulator."""
    bugs = []
    for name, file, builds, text, becomes in _BUG.findall(path.read_text()):
        bugs.append(Bug(name, file, builds or file, _unescape(text), _unescape(becomes)))
    if not bugs:
        raise PtxError(f"{path} has no planted bug")
    return bugs


def _unescape(text: str) -> str:
    """Replaces CMake's escapes."""
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text)


def plant(bug: Bug, folder: Path) -> Path:
    """Writes the changed file below a folder. Returns the .cu file to compile."""
    source = (KERNELS / bug.file).read_text()
    if source.count(bug.text) != 1:
        raise PtxError(f"{bug.name}: {bug.file} must contain this text once; correct the bug: {bug.text!r}")
    changed = folder / "lockstep/kernels/cuda" / bug.file
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_text(source.replace(bug.text, bug.becomes))
    return changed if bug.builds == bug.file else KERNELS / bug.builds


def compile_command(build: Path, architecture: str, file: str) -> list[str]:
    """Returns the build's own command that compiles a .cu file to PTX, without source and output."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if f"ptx_{architecture}.dir" in entry["command"] and Path(entry["file"]).name == file:
            return _without(words, entry["file"])
    raise PtxError(f"{build}/compile_commands.json compiles no {file} to PTX: run cmake there")


def _without(words: list[str], source: str) -> list[str]:
    """Removes the source, the output and the list of dependencies from a command."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word in ("-o", "-MT", "-MF"):
            skip = not skip
        elif word not in (source, "-MD"):
            kept.append(word)
    return kept


def compile_bug(bug: Bug, folder: Path, build: Path, architecture: str) -> None:
    """Compiles the kernels with a bug to folder/ptx."""
    source = plant(bug, folder)
    output = folder / "ptx" / Path(bug.builds).with_suffix(".ptx").name
    output.parent.mkdir(exist_ok=True)
    command = compile_command(build, architecture, bug.builds)
    subprocess.run(
        [command[0], f"-I{folder}", *command[1:], str(source), "-o", str(output)], check=True, cwd=build
    )


def find_problem(bug: Bug, folder: Path, records: Path) -> Verdict | None:
    """Replays launches of the file's kernels until one does not agree."""
    open_library(folder / "ptx")
    for key, recordings in find_recordings(records).items():
        if key[0] != bug.builds:
            continue
        for recording in recordings:
            (verdict,) = replay_kernel((key, [recording.path], 1))
            if not verdict.agrees:
                return verdict
    return None


def check(bug: Bug, options: argparse.Namespace) -> bool:
    """Plants a bug and prints how the interpreter names it. Returns whether that is as expected."""
    folder = options.work / bug.name
    compile_bug(bug, folder, options.build, options.architecture)
    verdict = find_problem(bug, folder, options.records)
    if verdict is None:
        print(f"{bug.name}: NOT NOTICED", flush=True)
        return False
    is_right = re.match(NAMES[bug.name], verdict.problem) is not None
    print(f"{bug.name}: {'noticed' if is_right else 'WRONG NAME'}: {verdict.problem[:200]}", flush=True)
    return is_right


def main() -> int:
    """Plants all bugs and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m ptx.faults", description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="build folder whose commands compile PTX")
    parser.add_argument("--records", type=Path, required=True, help="folder of recorded launches")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the changed sources and their PTX"
    )
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--only", default="", help="plant only bugs whose name matches this regex")
    options = parser.parse_args()
    for name in ("build", "records", "work"):
        setattr(options, name, getattr(options, name).resolve())
    bugs = [*read_bugs(ROOT / "tests/emulator/planted_bugs.cmake"), NO_SWIZZLE]
    unknown = {bug.name for bug in bugs} - set(NAMES)
    if unknown:
        raise PtxError(
            f"tests/ptx/faults.py does not say how the interpreter must name {', '.join(sorted(unknown))}"
        )
    wrong = [bug.name for bug in bugs if re.search(options.only, bug.name) and not check(bug, options)]
    print(f"ptx.faults: {len(wrong)} of {len(bugs)} bugs were not named as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
