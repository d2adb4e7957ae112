# SPDX-License-Identifier: Apache-2.0
"""Builds and runs small kernels for the tests."""

from __future__ import annotations

import struct

import numpy as np

from ptx.launch import Launch, Shape
from ptx.memory import GlobalMemory, Region
from ptx.parser import Module
from ptx.tensor_core import ARCHITECTURES

ADDRESS = 0x7000_0000_0000
_TEMPLATE = """
.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry kernel(.param .u64 .ptr .global kernel_param_0)
{{
  .reg .pred %p<16>;
  .reg .b16 %rs<16>;
  .reg .b32 %r<32>;
  .reg .f32 %f<16>;
  .reg .f64 %fd<16>;
  .reg .b64 %rd<16>;
  ld.param.u64 %rd0, [kernel_param_0];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mad.lo.s32 %r3, %r1, %r2, %r0;
  mul.wide.u32 %rd1, %r3, {stride};
  add.s64 %rd2, %rd0, %rd1;
{body}
  ret;
}}
"""


def launch_of(
    body: str,
    data: np.ndarray,
    threads: int = 32,
    blocks: int = 1,
    shared_bytes: int = 0,
    stride: int = 4,
    seed: int = 0,
) -> Launch:
    """Returns a launch whose %rd0 is the address of `data` and %rd2 that of the thread's element."""
    module = Module(_TEMPLATE.format(body=body, stride=stride))
    memory = GlobalMemory([Region(ADDRESS, data.nbytes)])
    memory.bytes[: data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)
    return Launch(
        module.entry("kernel"),
        Shape((blocks, 1, 1), (threads, 1, 1), shared_bytes),
        struct.pack("<Q", ADDRESS),
        memory,
        ARCHITECTURES["sm_90a"],
        seed,
    )


def run(body: str, data: np.ndarray, **options: int) -> np.ndarray:
    """Runs a kernel on a copy of `data`, and returns the copy."""
    launch = launch_of(body, data, **options)
    launch.run()
    return launch.memory.bytes[: data.nbytes].view(data.dtype).reshape(data.shape).copy()


def run_binary(operation: str, kind: str, a: np.ndarray, b: np.ndarray, result: str = "") -> np.ndarray:
    """Runs an instruction with two sources on 32 pairs of numbers of one type."""
    register = {"b16": "rs", "b32": "r", "b64": "rd", "f32": "f", "f64": "fd"}[kind]
    size = a.itemsize
    data = np.concatenate([np.asarray(a), np.asarray(b), np.zeros(32, a.dtype)])
    to = result or register
    body = f"""
  ld.global.{kind} %{register}10, [%rd2];
  ld.global.{kind} %{register}11, [%rd2+{32 * size}];
  {operation} %{to}12, %{register}10, %{register}11;
  st.global.{kind} [%rd2+{64 * size}], %{to}12;
"""
    return run(body, data, stride=size)[64:]
