# SPDX-License-Identifier: Apache-2.0
"""Imports every module that enters instructions into the table."""

from ptx import conversions, copies, floats, integers, loads, warps

__all__ = ["conversions", "copies", "floats", "integers", "loads", "warps"]
