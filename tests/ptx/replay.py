# SPDX-License-Identifier: Apache-2.0
"""Replays recorded launches and compares the two witnesses in every byte."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from pathlib import Path

from ptx.counters import Counters
from ptx.errors import PtxError, Trap
from ptx.launch import Launch
from ptx.library import Library
from ptx.parser import Entry
from ptx.recording import Recording, read_recording
from ptx.tensor_core import ARCHITECTURES


@dataclass
class Verdict:
    """The outcome of one replay. `error` is the relative size of a difference, 0 if all bits agree."""

    recording: Recording
    problem: str = ""
    error: float = 0.0
    seconds: float = 0.0
    approximate: set[str] = field(default_factory=set)
    counters: Counters = field(default_factory=Counters)

    @property
    def agrees(self) -> bool:
        """Returns whether both witnesses agree in every byte."""
        return not self.problem


def replay(recording: Recording, library: Library, entry: Entry, seed: int) -> Verdict:
    """Runs nvcc's PTX of a recorded launch on the memory before it."""
    verdict = Verdict(recording)
    begin = time.perf_counter()
    architecture = ARCHITECTURES[library.target(recording.file)]
    memory = recording.memory()
    launch = Launch(entry, recording.shape, recording.parameters, memory, architecture, seed)
    try:
        launch.run()
        differences = recording.differences(memory)
        if differences:
            verdict.problem = "different bits: " + "; ".join(found.describe() for found in differences)
            verdict.error = max(found.largest_error() for found in differences)
        elif launch.counters.matrix_passes > launch.counters.matrix_ideal:
            passes, ideal = launch.counters.matrix_passes, launch.counters.matrix_ideal
            verdict.problem = f"bank conflicts: ldmatrix takes {passes} passes, {ideal} are possible"
            verdict.error = float("inf")
    except (Trap, PtxError) as problem:
        verdict.problem = str(problem)
        verdict.error = float("inf")
    verdict.seconds = time.perf_counter() - begin
    verdict.approximate = launch.approximate
    verdict.counters = launch.counters
    return verdict


_library: Library | None = None


def open_library(folder: Path) -> None:
    """Opens the PTX of this process."""
    global _library
    _library = Library(folder)
    # The garbage collector runs only between launches, and sees only what a launch has left behind.
    gc.disable()
    gc.freeze()


def replay_kernel(task: tuple[tuple[str, str], list[Path], int]) -> list[Verdict]:
    """Replays launches of one kernel, which is given by its file and symbol."""
    (file, symbol), paths, seed = task
    assert _library is not None
    entry = _library.entry(file, symbol)
    verdicts = []
    for path in paths:
        verdicts.append(replay(read_recording(path), _library, entry, seed))
        verdicts[-1].recording.regions = []
        gc.collect()
    return verdicts


def find_recordings(folder: Path) -> dict[tuple[str, str], list[Recording]]:
    """Returns the launches of a folder by file and symbol, without their memory, the smallest first."""
    found: dict[tuple[str, str], list[Recording]] = {}
    for path in sorted(folder.glob("*.launch")):
        recording = read_recording(path, with_memory=False)
        found.setdefault((recording.file, recording.symbol), []).append(recording)
    if not found:
        raise PtxError(f"{folder} has no recorded launch")
    for recordings in found.values():
        recordings.sort(key=lambda recording: (recording.lanes, recording.path.name))
    return dict(sorted(found.items()))


def choose(recordings: list[Recording], most_lanes: int) -> Recording:
    """Returns the largest launch that is not larger than a limit, or else the smallest one."""
    fitting = [recording for recording in recordings if recording.lanes <= most_lanes]
    return fitting[-1] if fitting else recordings[0]
