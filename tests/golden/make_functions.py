#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes function_ops.safetensors: elementwise functions, masks, extremes, and cutting and joining. README.md describes it."""

import torch
from torch.nn import functional as F

from make_golden import FOLDER, add_operation, differentiate, save_safetensors

INF, NAN = torch.inf, torch.nan
COMPARISONS = {"less": torch.lt, "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge,
               "equal": torch.eq, "not_equal": torch.ne}


def product_of_chunks(x):
    first, second = x.chunk(2, -1)
    return first[..., : second.shape[-1]] * second


# name -> function, shapes of inputs. Inputs are in [0.5, 1.5).
OPERATIONS = {
    "sigmoid": (torch.sigmoid, (3, 4)),
    "silu": (F.silu, (3, 4)),
    "sqrt": (torch.sqrt, (3, 4)),
    "rsqrt": (torch.rsqrt, (3, 4)),
    "pow_square": (lambda x: x**2, (3, 4)),
    "pow_number": (lambda x: x**3.5, (3, 4)),
    "pow_of_number": (lambda x: 2.5**x, (3, 4)),
    "pow": (torch.pow, (3, 1, 4), (2, 1)),
    "add_number": (lambda x: x + 1.5, (5,)),
    "subtract_number": (lambda x: x - 1.5, (5,)),
    "number_minus": (lambda x: 2 - x, (5,)),
    "divide_by_number": (lambda x: x / 3, (5,)),
    "divide_number": (lambda x: 2 / x, (5,)),
    "minus": (lambda x: -x, (5,)),
    "maximum": (torch.maximum, (3, 1, 4), (2, 1)),
    "minimum": (torch.minimum, (3, 1, 4), (2, 1)),
    "clamp": (lambda x: x.clamp(0.75, 1.25), (5, 4)),
    "where": (lambda x, y: torch.where(x < 1, x, y), (3, 1, 4), (2, 1)),
    "masked": (lambda x: x * (x > 1), (5, 4)),
    "max": (torch.max, (3, 4)),
    "min": (torch.min, (3, 4)),
    "max_first": (lambda x: x.max(0).values, (5, 3)),
    "min_kept": (lambda x: x.min(-2, keepdim=True).values, (2, 5, 3)),
    "max_last": (lambda x: x.max(-1).values, (2, 5, 3)),
    "cat": (lambda x, y: torch.cat([x, y], -1), (2, 3, 4), (2, 3, 2)),
    "stack": (lambda x, y: torch.stack([x, y], 1), (2, 3), (2, 3)),
    "chunk": (product_of_chunks, (2, 5)),
    "slice": (lambda x: x[:, -3:-1], (2, 5, 3)),
}

BASES = [0.0, 0.0, 0.0, -0.0, -2.0, -2.0, -2.0, 2.0, 1.0, NAN, NAN, INF, -INF, -INF, 2.0, -1.0, 0.5, 0.0, -0.0, 1.0]
EXPONENTS = [0.0, 1.0, -1.0, -1.0, 2.0, 3.0, 0.5, NAN, NAN, 0.0, 1.0, -1.0, 3.0, -3.0, INF, INF, -INF, 2.0, 2.0, 0.5]
ONE = [1.0, NAN, 2.0, 3.0, 0.0, INF, -INF, NAN]
OTHER = [1.0, 0.0, NAN, 1.0, 0.0, INF, INF, NAN]
ROWS = [[1.0, 3.0, 3.0], [NAN, 2.0, NAN], [INF, INF, -INF], [-INF, -INF, -INF], [5.0, 7.0, 6.0]]
EDGES = {
    "sigmoid": (torch.sigmoid, [-INF, INF, NAN, 0.0]),
    "silu": (F.silu, [-INF, INF, NAN, 0.0]),
    "sqrt": (torch.sqrt, [0.0, -1.0, INF, NAN, 4.0]),
    "rsqrt": (torch.rsqrt, [0.0, -1.0, INF, NAN, 4.0]),
    "pow": (torch.pow, BASES, EXPONENTS),
    "pow_zero": (lambda x: x**0.0, [0.0, INF, NAN, 2.0]),
    "pow_square": (lambda x: x**2.0, [0.0, -INF, NAN, -3.0]),
    "maximum": (torch.maximum, ONE, OTHER),
    "minimum": (torch.minimum, ONE, OTHER),
    "clamp": (lambda x: x.clamp(-1, 1), [NAN, INF, -INF, 1.0, -1.0, 0.5]),
    "clamp_low": (lambda x: x.clamp(min=-1), [NAN, INF, -INF, 1.0, -1.0, 0.5]),
    "where": (lambda x, y: torch.where(x < 1, x, y), ONE, OTHER),
    "max": (torch.max, [1.0, 3.0, 3.0, -INF]),
    "max_of_nan": (torch.max, [1.0, NAN, 3.0, NAN]),
    "min": (torch.min, [[1.0, -INF], [-INF, 2.0]]),
    "max_last": (lambda x: x.max(-1).values, ROWS),
    "min_last": (lambda x: x.min(-1).values, ROWS),
    "max_first": (lambda x: x.max(0).values, ROWS),
}


def function_facts():
    generator = torch.Generator().manual_seed(20261129)
    facts = {}
    for name, (forward, *shapes) in OPERATIONS.items():
        inputs = {key: 0.5 + torch.rand(shape, generator=generator) for key, shape in zip("xy", shapes)}
        dy = torch.randn(forward(*inputs.values()).shape, generator=generator)
        add_operation(facts, name, forward, {f"in_{key}": value for key, value in inputs.items()}, dy)
    for name, (forward, *values) in EDGES.items():
        inputs = {f"in_{key}": torch.tensor(value) for key, value in zip("xy", values)}
        facts |= {f"edge.{name}.{key}": value for key, value in inputs.items()}
        facts |= {f"edge.{key}": value for key, value in differentiate(
            name, torch.float64, forward, inputs, torch.ones_like(forward(*inputs.values()))).items()}
    x, y = torch.tensor(ONE), torch.tensor(OTHER)
    facts |= {"mask.in_x": x, "mask.in_y": y} | {f"mask.{name}": compare(x, y).int() for name, compare in COMPARISONS.items()}
    rows = torch.tensor(ROWS)
    facts |= {"place.in_x": rows, "place.argmax": rows.argmax(-1).int(), "place.argmin": rows.argmin(0).int()}
    return facts


if __name__ == "__main__":
    torch.set_num_threads(1)
    metadata = {"made_by": "tests/golden/make_functions.py", "torch": torch.__version__}
    save_safetensors(FOLDER / "function_ops.safetensors", function_facts(), metadata)
