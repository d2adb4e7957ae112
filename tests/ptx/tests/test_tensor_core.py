# SPDX-License-Identifier: Apache-2.0
"""Tests the model of mma against the golden tiles and against exact sums."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

import numpy as np

from ptx import tensor_core

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
NAMES = {"Ampere": "sm_80", "Hopper": "sm_90a"}


def golden_tile(data: bytes, offset: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns A, B, C and D of the tile that begins at an offset of the file."""
    a = np.frombuffer(data, np.uint16, 256, offset).reshape(1, 16, 16)
    b = np.frombuffer(data, np.uint16, 128, offset + 512).reshape(1, 16, 8)
    c = np.frombuffer(data, np.float32, 128, offset + 768).reshape(1, 16, 8)
    d = np.frombuffer(data, np.float32, 128, offset + 1280).reshape(1, 16, 8)
    return a, b, c, d


class GoldenTiles(unittest.TestCase):
    """All tiles of tests/golden/mma_m16n8k16.bin."""

    def test_every_tile_is_equal_in_bits(self) -> None:
        tiles = json.loads((GOLDEN / "mma_m16n8k16.json").read_text())
        data = (GOLDEN / "mma_m16n8k16.bin").read_bytes()
        self.assertEqual(len(tiles), 16)
        for tile in tiles:
            with self.subTest(**tile):
                a, b, c, d = golden_tile(data, tile["offset"])
                architecture = tensor_core.ARCHITECTURES[NAMES[tile["arch"]]]
                result = tensor_core.multiply(a, b, c, tile["type"], architecture)
                np.testing.assert_array_equal(result.view(np.uint32), d.view(np.uint32))


if __name__ == "__main__":
    unittest.main()
