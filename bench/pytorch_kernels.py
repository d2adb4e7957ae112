# SPDX-License-Identifier: Apache-2.0
"""Compares PyTorch's kernels of a GPT step on a GPU with Lockstep's rows from bench_kernels."""

import functools
import itertools
import math
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from pytorch_step import BACKENDS
from torch.nn import functional as F
from torch.nn.attention import sdpa_kernel

ROTATED_BYTES = 180 << 20  # operands that calls rotate through; more than a cache holds
SAMPLES, SAMPLE_CALLS = 9, 10
ATTENTION = [(64, 1024, 12, 64), (32, 1024, 12, 64), (64, 256, 6, 64), (32, 1024, 16, 128), (16, 2048, 16, 128)]
ROWS = [(65536, 768), (32768, 768)]
LOGITS = [(65536, 50304)]
PARAMETERS = [124_475_904]


def median_us(calls):
    """Returns the median microseconds of one call. The calls take turns."""
    turn = 0

    def sample(count):
        nonlocal turn
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            calls[turn % len(calls)]()
            turn += 1
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / count
    sample(3 * len(calls))
    return statistics.median(sample(SAMPLE_CALLS) for _ in range(SAMPLES))


def normal(*shape, dtype=torch.bfloat16, device="cuda"):
    return torch.randn(*shape, dtype=dtype, device=device)


def gradient_call(y, inputs, dy):
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


def attention(shape, backend, backward, device="cuda"):
    """Makes scaled dot-product attention on views of packed queries, keys and values, as in a model."""
    batch, length, heads, size = shape
    qkv = normal(batch, length, 3, heads, size, device=device).requires_grad_(backward)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    forward = functools.partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)
    with sdpa_kernel(BACKENDS[backend]):
        if not backward:
            return forward
        y = forward()
    return gradient_call(y, (q, k, v), torch.randn_like(y))


def layer_norm(shape, compiled, backward, device="cuda"):
    x = normal(*shape, device=device).requires_grad_(backward)
    weight, bias = (normal(shape[-1], device=device).requires_grad_(backward) for _ in range(2))
    norm = torch.compile(F.layer_norm, dynamic=False) if compiled else F.layer_norm
    if not backward:
        return lambda: norm(x, (shape[-1],), weight, bias)
    y = norm(x, (shape[-1],), weight, bias)
    return gradient_call(y, (x, weight, bias), torch.randn_like(y))


def cross_entropy(shape, device="cuda"):
    """Makes the loss and the gradient of the logits. It is compiled because eager PyTorch makes an fp32 copy of the
    logits."""
    logits = normal(*shape, device=device).requires_grad_()
    targets = torch.randint(shape[1], (shape[0],), device=device)
    loss = torch.compile(F.cross_entropy, dynamic=False)
    return lambda: torch.autograd.grad(loss(logits, targets), logits)


def adamw(parameters, device="cuda"):
    weight = normal(parameters, dtype=torch.float32, device=device).requires_grad_()
    weight.grad = torch.randn_like(weight)
    return torch.optim.AdamW([weight], fused=True).step


@dataclass(frozen=True)
class Peer:
    """A PyTorch kernel that computes the same as one row of bench_kernels. us() makes its operands."""
    case: str
    shape: tuple
    name: str
    make: Callable
    footprint: int = ROTATED_BYTES
    backend: str = "flash"

    def text(self):
        return "x".join(map(str, self.shape))

    def us(self):
        with sdpa_kernel(BACKENDS[self.backend]):
            return median_us([self.make() for _ in range(min(64, ROTATED_BYTES // self.footprint + 1))])


def peers():
    found = []
    for shape, backward, backend in itertools.product(ATTENTION, (False, True), ("flash", "cudnn")):
        found.append(Peer("attention_backward" if backward else "attention_forward", shape, f"sdpa {backend}",
                          functools.partial(attention, shape, backend, backward), 8 * math.prod(shape), backend))
    for shape, backward, compiled in itertools.product(ROWS, (False, True), (False, True)):
        found.append(Peer("layer_norm_backward" if backward else "layer_norm_forward", shape,
                          "compiled" if compiled else "eager",
                          functools.partial(layer_norm, shape, compiled, backward), 4 * math.prod(shape)))
    found += [Peer("cross_entropy", shape, "compiled", functools.partial(cross_entropy, shape)) for shape in LOGITS]
    found += [Peer("adamw_step", (count,), "fused", functools.partial(adamw, count)) for count in PARAMETERS]
    return found


def product_ceiling():
    """Returns the operations per second of a bf16 matmul of 8192 x 8192 matrices, the ceiling of whole steps."""
    a, b = normal(8192, 8192), normal(8192, 8192)
    return 2 * 8192**3 / (1e-6 * median_us([lambda: a @ b]))


def row_beside(ours, peer, us):
    """Returns Lockstep's row with the peer's rate. The rate is the same amount of work in the peer's time."""
    rate = float(ours["rate"]) * float(ours["us"]) / us
    kept = {key: ours[key] for key in ("case", "shape", "dtype", "us", "spread", "rate", "unit", "ceiling", "percent")}
    return kept | {"peer": f"torch {torch.__version__} {peer.name}", "peer_rate": round(rate, 1)}


def compare(bench_kernels, table, seconds):
    """Measures Lockstep's kernels and then PyTorch's, within `seconds`. Returns one row per PyTorch kernel."""
    end = time.monotonic() + seconds
    wanted = peers()
    pairs = sorted({f"{peer.case} {peer.text()}" for peer in wanted})
    try:
        subprocess.run([bench_kernels, "--device", "cuda", "--append", "--filter", f"^({'|'.join(pairs)})$"],
                       timeout=seconds, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"bench_kernels: {problem}; the comparison uses earlier rows of the table", flush=True)
    ours, rows = table.newest("bench_kernels"), []
    for peer in wanted:
        row = ours.get((peer.case, peer.text(), "bf16"))
        if row is None or time.monotonic() > end:
            print(f"{peer.case} {peer.text()}: {peer.name} is skipped: "
                  f"{'out of time' if row else 'bench_kernels has no such row'}", flush=True)
            continue
        try:
            rows.append(row_beside(row, peer, peer.us()))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        except Exception as problem:  # the next kernel may run even if this one fails
            print(f"{peer.case} {peer.text()}: {peer.name} failed: {str(problem)[:300]}", flush=True)
        torch.cuda.empty_cache()
    return rows
