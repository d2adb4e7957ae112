# SPDX-License-Identifier: Apache-2.0
"""Reads launches that the emulator recorded (tests/emulator/recorder.cpp describes the format)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ptx.errors import PtxError
from ptx.launch import Shape
from ptx.memory import GlobalMemory, Region

_MAGIC = b"LOCKREC1"
_GROUP_BYTES = 16
# Replaces the emulator's poison 0xff where nothing was written, so that a result that depends on it differs.
OTHER_POISON = np.uint8(0xE7)


@dataclass
class RecordedRegion:
    """An allocation: its bytes before and after the launch, and which of them nothing had written."""

    region: Region
    before: np.ndarray
    after: np.ndarray
    is_unwritten: np.ndarray


@dataclass
class Recording:
    """A recorded launch."""

    path: Path
    file: str
    symbol: str
    shape: Shape
    parameters: bytes
    regions: list[RecordedRegion] = field(default_factory=list)

    @property
    def lanes(self) -> int:
        """Returns the number of threads of the launch."""
        return self.shape.blocks * self.shape.threads

    def memory(self) -> GlobalMemory:
        """Returns the memory before the launch. Unwritten bytes hold another poison than the emulator's."""
        memory = GlobalMemory([recorded.region for recorded in self.regions])
        for recorded in self.regions:
            memory.slice(recorded.region)[...] = np.where(
                recorded.is_unwritten, OTHER_POISON, recorded.before
            )
        return memory

    def differences(self, memory: GlobalMemory) -> list["Difference"]:
        """Compares a memory with that after the launch. Bytes that nothing wrote must still be poison."""
        found = []
        for recorded in self.regions:
            result = memory.slice(recorded.region)
            is_poison = recorded.is_unwritten & (recorded.after == 0xFF)
            expected = np.where(is_poison, OTHER_POISON, recorded.after)
            wrong = np.flatnonzero(result != expected)
            # An emulated kernel may itself write 0xff over poison.
            wrong = wrong[~(is_poison[wrong] & (result[wrong] == 0xFF))]
            if len(wrong):
                found.append(Difference(recorded, result.copy(), expected, wrong))
        return found


@dataclass
class Difference:
    """The bytes of one allocation in which the two witnesses differ."""

    recorded: RecordedRegion
    interpreted: np.ndarray
    emulated: np.ndarray
    places: np.ndarray

    def describe(self) -> str:
        """Returns the number of bytes and the first word that differs."""
        first = int(self.places[0]) // 4 * 4
        words = [bytes(side[first : first + 4]).hex() for side in (self.interpreted, self.emulated)]
        region = self.recorded.region
        return (
            f"{len(self.places)} of {region.bytes} bytes of allocation {region.name} differ, "
            f"first at + {first}: interpreted {words[0]}, emulated {words[1]}"
        )

    def largest_error(self) -> float:
        """Returns the smallest tolerance that accepts the difference, for the element type that fits it best.

        The tolerance is relative to the root mean square of the allocation's changed elements.
        """
        return min(self._error(kind) for kind in ("f32", "bf16", "f16", "f64"))

    def _error(self, kind: str) -> float:
        sides = [_as_floats(side, kind) for side in (self.interpreted, self.emulated)]
        size = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8}[kind]
        if len(self.interpreted) % size:
            return float("inf")
        changed = _as_floats(self.recorded.before, kind).view(np.int64) != sides[1].view(np.int64)
        result, expected = sides[0][changed], sides[1][changed]
        with np.errstate(all="ignore"):
            scale = (
                np.sqrt(np.mean(expected.astype(np.longdouble) ** 2)) if len(expected) else np.longdouble(0)
            )
            errors = np.abs(result - expected)
        same = (result == expected) | (np.isnan(result) & np.isnan(expected))
        errors = np.where(same, 0.0, errors)
        if not np.isfinite(errors).all() or not np.isfinite(scale) or scale == 0:
            return float("inf")
        return float(errors.max() / scale)


def _as_floats(data: np.ndarray, kind: str) -> np.ndarray:
    """Returns bytes as doubles, read as elements of a type."""
    size = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8}[kind]
    whole = np.ascontiguousarray(data[: len(data) // size * size])
    with np.errstate(all="ignore"):
        if kind == "bf16":
            return (
                (whole.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
            )
        dtype = {"f32": np.float32, "f16": np.float16, "f64": np.float64}[kind]
        return whole.view(dtype).astype(np.float64)


class _Reader:
    """Reads numbers and texts from a file's bytes."""

    def __init__(self, data: bytes, path: Path) -> None:
        self._data = data
        self._path = path
        self._at = 0

    def take(self, count: int) -> bytes:
        """Returns the next bytes."""
        part = self._data[self._at : self._at + count]
        if len(part) != count:
            raise PtxError(f"{self._path}: the file ends too early: record it again")
        self._at += count
        return part

    def numbers(self, form: str) -> tuple[int, ...]:
        """Returns the next numbers, in a format of the module struct."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def text(self) -> bytes:
        """Returns the next text, which begins with its length."""
        return self.take(self.numbers("Q")[0])


def read_recording(path: Path, with_memory: bool = True) -> Recording:
    """Reads a recorded launch. Without its memory it only says which kernel ran, in which shape."""
    reader = _Reader(path.read_bytes(), path)
    if reader.take(8) != _MAGIC:
        raise PtxError(f"{path}: this is not a recorded launch")
    extents = reader.numbers("6I")
    (shared_bytes,) = reader.numbers("Q")
    file, symbol, parameters = reader.text().decode(), reader.text().decode(), reader.text()
    recording = Recording(
        path,
        file,
        symbol,
        Shape(extents[:3], extents[3:], shared_bytes),
        parameters,  # type: ignore[arg-type]
    )
    if with_memory:
        (count,) = reader.numbers("Q")
        recording.regions = [_read_region(reader, number) for number in range(count)]
    return recording


def _read_region(reader: _Reader, number: int) -> RecordedRegion:
    address, size = reader.numbers("QQ")
    _, is_changed = reader.numbers("BB")
    before = np.frombuffer(reader.take(size), np.uint8)
    groups = (size + _GROUP_BYTES - 1) // _GROUP_BYTES
    bits = np.unpackbits(np.frombuffer(reader.take((groups + 7) // 8), np.uint8), bitorder="little")[:groups]
    after = np.frombuffer(reader.take(size), np.uint8) if is_changed else before
    is_unwritten = np.repeat(bits.astype(np.bool_), _GROUP_BYTES)[:size]
    return RecordedRegion(Region(address, size, str(number)), before, after, is_unwritten)
