# SPDX-License-Identifier: Apache-2.0
"""The errors of the interpreter."""

from __future__ import annotations


class PtxError(Exception):
    """A text that is not the PTX this interpreter knows, or an instruction that it lacks."""


class Trap(Exception):
    """A mistake of a kernel: a race, a wrong address, a divergent barrier. The text begins with its kind."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind
