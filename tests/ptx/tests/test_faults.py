# SPDX-License-Identifier: Apache-2.0
"""Tests that the planted bugs still fit the sources."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from ptx import faults


class PlantedBugs(unittest.TestCase):
    """The list of bugs that both witnesses must notice."""

    def test_each_bug_has_a_name_and_a_place(self) -> None:
        bugs = [*faults.read_bugs(faults.ROOT / "tests/emulator/planted_bugs.cmake"), faults.NO_SWIZZLE]
        self.assertEqual({bug.name for bug in bugs}, set(faults.NAMES))
        with tempfile.TemporaryDirectory() as folder:
            for bug in bugs:
                self.assertTrue(faults.plant(bug, Path(folder)).exists())


if __name__ == "__main__":
    unittest.main()
