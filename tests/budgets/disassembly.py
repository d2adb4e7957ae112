# SPDX-License-Identifier: Apache-2.0
"""Disassembles cubins with nvdisasm, and reads its JSON."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cubins import BudgetError

INSTRUCTION_BYTES = 16


@dataclass(frozen=True)
class Instruction:
    """One instruction of SASS. `predicate` is empty or begins with @."""

    predicate: str
    opcode: str
    operands: str

    @property
    def base(self) -> str:
        """Returns the opcode without its modifiers: LDG for LDG.E.128."""
        return self.opcode.split(".", 1)[0]

    @property
    def modifiers(self) -> list[str]:
        """Returns the opcode's modifiers: [E, 128] for LDG.E.128."""
        return self.opcode.split(".")[1:]

    @property
    def never_runs(self) -> bool:
        """Returns whether the predicate is constantly false. Then only an issue slot is used."""
        return self.predicate == "@!PT"


@dataclass(frozen=True)
class Cubin:
    """The functions of a cubin by mangled name. `target` is like sm_90, without a letter after the number."""

    target: str
    functions: dict[str, list[Instruction]]


def disassemble(nvdisasm: Path, cubin: bytes) -> Cubin:
    """Disassembles one cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        result = subprocess.run([str(nvdisasm), "-json", file.name], capture_output=True, check=False)
    if result.returncode != 0:
        raise BudgetError(f"{nvdisasm} failed: {result.stderr.decode(errors='replace').strip()}")
    header, functions = json.loads(result.stdout)
    version = header["SM"]["version"]
    return Cubin(
        target=f"sm_{version['major']}{version['minor']}",
        functions={function["function-name"]: instructions_of(function) for function in functions},
    )


def instructions_of(function: dict) -> list[Instruction]:
    """Converts a function of nvdisasm's JSON."""
    return [
        Instruction(entry.get("predicate", ""), entry["opcode"], entry.get("operands", ""))
        for entry in function["sass-instructions"]
    ]


def demangle(names: list[str]) -> dict[str, str]:
    """Returns short names by mangled name, as scripts/check_kernels.sh writes them."""
    text = "".join(name + "\n" for name in names)
    result = subprocess.run(["c++filt"], input=text, capture_output=True, check=True, text=True)
    return {name: short_name(line) for name, line in zip(names, result.stdout.splitlines(), strict=True)}


def short_name(name: str) -> str:
    """Removes namespaces, the parameters and the result type from a kernel's name."""
    name = name.replace("(anonymous namespace)::", "")
    name = re.sub(r"[A-Za-z_][A-Za-z_0-9]*::", "", name)
    depth = 0
    for i, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            name = name[:i]
            break
    name = re.sub(r"^[a-z]+ ", "", name)
    return name.replace("__nv_bfloat16", "bf16").replace("__half", "f16").replace("float", "f32")
