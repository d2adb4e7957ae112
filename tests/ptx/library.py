# SPDX-License-Identifier: Apache-2.0
"""A folder of PTX files, and the kernels in it by the names that the emulator records."""

from __future__ import annotations

import re
from pathlib import Path

from ptx.errors import PtxError
from ptx.parser import Entry, Module

_INTERNAL_NAMESPACE = re.compile(r"(\d+)(_GLOBAL__N_)")
# clang's mangled name of the anonymous namespace. nvcc puts the file's name and a hash into it.
_PLAIN_NAMESPACE = "12_GLOBAL__N_1"


def plain_symbol(symbol: str) -> str:
    """Returns a mangled name with clang's name of the anonymous namespace instead of nvcc's."""
    parts: list[str] = []
    at = 0
    while match := _INTERNAL_NAMESPACE.search(symbol, at):
        digits, length = _namespace_length(symbol, match)
        begin = match.start(1) + len(match[1]) - len(digits)
        parts += [symbol[at:begin], _PLAIN_NAMESPACE]
        at = match.start(2) + length
    return "".join(parts) + symbol[at:]


def _namespace_length(symbol: str, match: re.Match[str]) -> tuple[str, int]:
    """Returns the digits that give the length of the namespace's name, and the length.

    Digits before them may belong to what precedes the name. The true length is the one at which the name ends
    with the hash that nvcc appends, or clang's own.
    """
    rest = symbol[match.start(2) :]
    for skipped in range(len(match[1])):
        digits = match[1][skipped:]
        name = rest[: int(digits)]
        if name == "_GLOBAL__N_1" or re.fullmatch(r"_GLOBAL__N__[0-9a-f]+_\d+_\w+_[0-9a-f]+", name):
            return digits, int(digits)
    raise PtxError(f"unknown form of anonymous namespace in {symbol}")


class Library:
    """The kernels of all .ptx files of a folder, which are named like their .cu files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, Module] = {}
        self._names: dict[str, dict[str, str]] = {}
        if not any(folder.glob("*.ptx")):
            raise PtxError(f"{folder} has no .ptx file")

    @property
    def files(self) -> list[str]:
        """Returns the names of the .cu files."""
        return sorted(f"{path.stem}.cu" for path in self._folder.glob("*.ptx"))

    def kernels(self, file: str) -> list[str]:
        """Returns the plain symbols of a file's kernels."""
        self._module(file)
        return list(self._names[file])

    def target(self, file: str) -> str:
        """Returns the target that a file was compiled for, such as sm_90a."""
        return self._module(file).target

    def entry(self, file: str, symbol: str) -> Entry:
        """Returns a kernel. Raises PtxError if the file does not have it."""
        module = self._module(file)
        name = self._names[file].get(plain_symbol(symbol))
        if name is None:
            raise PtxError(f"{file} has no kernel {symbol}: record and compile the same sources")
        return module.entry(name)

    def _module(self, file: str) -> Module:
        if file not in self._modules:
            path = self._folder / f"{Path(file).stem}.ptx"
            if not path.exists():
                raise PtxError(f"{path} is missing")
            module = Module(path.read_text())
            names = {plain_symbol(name): name for name in module.names}
            if len(names) != len(module.names):
                raise PtxError(f"two kernels of {file} have one name without their namespaces")
            self._modules[file], self._names[file] = module, names
        return self._modules[file]
