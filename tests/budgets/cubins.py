# SPDX-License-Identifier: Apache-2.0
"""Takes cubins out of the objects that nvcc wrote.

An object's section .nv_fatbin holds containers. The layout was read from objects of nvcc 13.0:
  container  u32 magic, u16 version, u16 bytes of this header, u64 bytes that follow
  entry      u16 kind (1 PTX, 2 cubin), u16 version, u32 bytes of this header, u64 bytes of the payload
A cubin is an ELF file, unless nvcc compressed it.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

MAGIC = 0xBA55ED50
CUBIN = 2
ELF = b"\x7fELF"


class BudgetError(Exception):
    """An error whose text says what happened, where, and what to do."""


def section_of(item: Path) -> bytes:
    """Returns the section .nv_fatbin of an object."""
    with tempfile.TemporaryDirectory() as folder:
        section = Path(folder) / "section"
        subprocess.run(
            ["objcopy", "-O", "binary", "--only-section=.nv_fatbin", str(item), str(section)], check=True
        )
        return section.read_bytes()


def cubins_in(section: bytes, item: Path) -> Iterator[bytes]:
    """Yields the cubins of a section. `item` is named in errors."""
    at = 0
    while at + 16 <= len(section):
        magic, _, header, size = struct.unpack_from("<IHHQ", section, at)
        if magic != MAGIC:
            at += 8  # containers begin at multiples of 8 bytes
            continue
        at, end = at + header, at + header + size
        while at < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", section, at)
            payload = section[at + header : at + header + size]
            at += header + size
            if kind != CUBIN:
                continue
            if not payload.startswith(ELF):
                raise BudgetError(f"{item}: a cubin is compressed: compile with nvcc's option --no-compress")
            yield payload


def cubins_of(item: Path) -> list[bytes]:
    """Returns the cubins of an object, one for each target."""
    cubins = list(cubins_in(section_of(item), item))
    if not cubins:
        raise BudgetError(f"{item}: no cubin was found: compile it with scripts/check_kernels.sh")
    return cubins
