# SPDX-License-Identifier: Apache-2.0
"""The processor's name and the commit in the rows of the comparisons."""

import os
import re
import subprocess
from pathlib import Path


def _facts():
    """Returns the fields of /proc/cpuinfo by name. They are the same for every core."""
    return dict(re.findall(r"^(\w[\w ]*?)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))


def is_amd():
    return _facts().get("vendor_id") == "AuthenticAMD"


def processor():
    """Returns the model and its best matmul instruction set. A hypervisor may give several models the same name."""
    facts = _facts()
    flags = facts.get("flags", "").split()
    kind = next((kind for kind in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if kind in flags), "")
    return f"{facts.get('model name', os.uname().machine)} {kind}".strip()


def commit():
    """Returns the commit of the checkout, as bench/commit.sh prints it."""
    script = Path(__file__).resolve().parent / "commit.sh"
    return subprocess.run([script], check=True, capture_output=True, text=True).stdout.strip()
