# SPDX-License-Identifier: Apache-2.0
"""What the rows of the comparisons call the processor that they were measured on."""

import os
import re
from pathlib import Path


def _facts():
    """Of /proc/cpuinfo, by name; every core has the same."""
    return dict(re.findall(r"^(\w[\w ]*?)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))


def is_amd():
    return _facts().get("vendor_id") == "AuthenticAMD"


def processor():
    """The model and what it multiplies with: a hypervisor may call several kinds of a model alike."""
    facts = _facts()
    flags = facts.get("flags", "").split()
    kind = next((kind for kind in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if kind in flags), "")
    return f"{facts.get('model name', os.uname().machine)} {kind}".strip()
