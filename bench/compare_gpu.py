# SPDX-License-Identifier: Apache-2.0
"""Compares Lockstep with PyTorch on one GPU: tokens per second of whole steps, and single kernels.

Both programs start from the same weights and take the same random tokens in the same order. They must report the same
losses. Each PyTorch setting is timed once. The fastest one then alternates with Lockstep, block by block. A setting
that fails is reported and skipped. Rows are appended to bench/results/<GPU>.csv.
"""

import gc
import statistics
import time
from dataclasses import dataclass

import pytorch_kernels
import pytorch_step
import random_tokens
import torch
from gpu_table import Table, state
from pytorch_gpt import Shape

COMPARED_STEPS, SAME_LOSS = 20, 0.02
WARMUP_STEPS, BLOCK_STEPS = 20, 20
MEASURED_STEPS = 60  # steps of a Lockstep run, including the warm-up
MODEL_KEYS = ["data.dataset=random_tokens", "dist.replicas=1", "model.dropout=0", "train.precision=bf16",
              "train.device=cuda", "train.tune_matmul=true"]


@dataclass(frozen=True)
class Workload:
    config: str
    keys: tuple
    batch: int

    def overrides(self):
        return [*MODEL_KEYS, *self.keys, f"train.batch_size={self.batch}"]


WORKLOADS = {
    "gpt2_124m_b64": Workload("gpt2_124m.ini", (), 64),
    "gpt2_124m_b32": Workload("gpt2_124m.ini", (), 32),
    "shakespeare": Workload("shakespeare.ini", ("model.vocab_size=65", "train.sample_every=0"), 64),
}


class Budget:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


def shape_of(config):
    gelu = {"gelu_tanh": "tanh", "gelu_erf": "none"}[config["model"]["activation"]]
    return Shape(int(config["model"]["vocab_size"]), int(config["data"]["block_size"]),
                 int(config["model"]["n_layer"]), int(config["model"]["n_head"]), int(config["model"]["n_embd"]),
                 config.getboolean("model", "bias"), config.getboolean("model", "tie_weights"), gelu)


def optimizer_of(config, learning_rate):
    train = config["train"]
    return {"learning_rate": learning_rate, "betas": (float(train["beta1"]), float(train["beta2"])),
            "weight_decay": float(train["weight_decay"]), "grad_clip": float(train["grad_clip"])}


def flops_per_token(shape, weights):
    """Returns 6 FLOPs per matmul weight plus causal attention's 6 x layers x width x time."""
    products = sum(value.numel() for name, value in weights.items() if value.dim() == 2 and "wpe" not in name)
    return 6 * products + 6 * shape.n_layer * shape.n_embd * shape.block_size


def differing(ours, theirs):
    """Returns the largest difference of the first losses."""
    return max(abs(a - b) for a, b in zip(ours[:COMPARED_STEPS], theirs[:COMPARED_STEPS]))


def spread(samples):
    """Returns the interquartile range in percent of the median."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return 100 * (high - low) / statistics.median(samples)


class Peers:
    """PyTorch's settings for one workload. Times as many settings as the budget allows and keeps the fastest training."""

    def __init__(self, shape, weights, optimizer, tokens, ours, device="cuda"):
        self.made_of = (shape, weights, optimizer)
        self.tokens, self.ours, self.device = tokens, ours, device
        self.best, self.best_ms, self.milliseconds = None, float("inf"), {}

    def blocks(self, count):
        """Returns the batches of the warm-up and of `count` blocks. Each step uses the tokens of that step."""
        steps = self.tokens.to(self.device)
        edges = [0, WARMUP_STEPS] + [WARMUP_STEPS + BLOCK_STEPS * (block + 1) for block in range(count)]
        return [[steps[step % len(steps)] for step in range(begin, end)] for begin, end in zip(edges, edges[1:])]

    def measure(self, setting):
        training = pytorch_step.Training(*self.made_of, setting, self.device)
        warmup, *blocks = self.blocks(2)
        training.block(warmup)
        difference = differing(self.ours, [loss.item() for loss in training.losses])
        if not difference <= SAME_LOSS:
            raise RuntimeError(f"its losses differ from Lockstep's by {difference:.3g}")
        milliseconds = statistics.median(training.block(block) for block in blocks)
        self.milliseconds[setting] = milliseconds
        if milliseconds < self.best_ms:
            self.best, self.best_ms = training, milliseconds
        return milliseconds, difference

    def measure_all(self, budget, name):
        longest = 0.0
        for setting in pytorch_step.settings():
            if self.milliseconds and budget.left() < longest:
                print(f"{name}: {setting} is skipped: out of time", flush=True)
                continue
            begin = time.monotonic()
            try:
                milliseconds, difference = self.measure(setting)
                print(f"{name}: {setting} {milliseconds:.2f} ms per step, losses within {difference:.1e}; {state()}",
                      flush=True)
            except Exception as problem:  # the next setting may run even if this one fails
                print(f"{name}: {setting} is skipped: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
            longest = max(longest, time.monotonic() - begin)
            torch.compiler.reset()
            gc.collect()
            if self.device == "cuda":
                torch.cuda.empty_cache()


def compare(name, make_lockstep, budget, folder, options, ceiling_flops):
    """Returns the rows of one workload. `make_lockstep` makes a Lockstep from a configuration and its overrides."""
    learning_rate = options.learning_rate
    workload = WORKLOADS[name]
    lockstep = make_lockstep(workload.config, workload.overrides())
    weights, config = lockstep.initial_weights(folder / f"{name}_initial")
    shape = shape_of(config)
    tokens = random_tokens.batches(MEASURED_STEPS, workload.batch, shape.block_size, shape.vocab_size,
                                   int(config["train"]["seed"]))

    def our_block(place):
        losses, times = lockstep.measure(folder / f"{name}_{place}", MEASURED_STEPS, learning_rate)
        return losses, statistics.median(times[WARMUP_STEPS:])

    losses, first_ms = our_block("first")
    print(f"{name}: Lockstep {first_ms:.2f} ms per step; {state()}", flush=True)
    peers = Peers(shape, weights, optimizer_of(config, learning_rate), tokens, losses)
    peers.measure_all(budget, name)
    if peers.best is None:
        raise RuntimeError(f"{name}: every PyTorch setting failed")

    ours, theirs = [first_ms], [peers.best_ms]
    for repeat in range(options.repeats):
        ours.append(our_block(repeat)[1])
        theirs.append(peers.best.block(peers.blocks(1)[1]))
        print(f"{name} {repeat + 1}: Lockstep {ours[-1]:.2f} ms, PyTorch {theirs[-1]:.2f} ms; {state()}", flush=True)
    peers.milliseconds[peers.best.setting] = statistics.median(theirs)
    ceiling = ceiling_flops / flops_per_token(shape, weights)
    return step_rows(name, (workload.batch, shape.block_size), ceiling, ours, peers.milliseconds)


def step_rows(name, size, ceiling, ours, theirs):
    """Returns one row per PyTorch setting with Lockstep's figures, the fastest first. `ceiling` is in tokens per second."""
    tokens, ms = size[0] * size[1], statistics.median(ours)
    rate = 1e3 * tokens / ms
    return [{"case": f"step {name}", "shape": f"{size[0]}x{size[1]}", "dtype": "bf16", "us": round(1e3 * ms, 1),
             "spread": round(spread(ours), 1), "rate": round(rate), "unit": "tokens/s",
             "ceiling": round(ceiling), "percent": round(100 * rate / ceiling, 1),
             "peer": f"torch {torch.__version__} {setting}", "peer_rate": round(1e3 * tokens / peer_ms)}
            for setting, peer_ms in sorted(theirs.items(), key=lambda item: item[1])]


def run(options, make_lockstep, folder):
    """Measures the kernels first, then each workload. The workloads share the remaining time equally."""
    budget, table = Budget(options.seconds), Table()
    print(f"{table.device}, driver {table.driver}, PyTorch {torch.__version__}, {state()}", flush=True)
    torch.set_float32_matmul_precision("high")
    ceiling = pytorch_kernels.product_ceiling()
    rows = pytorch_kernels.compare(options.program.with_name("bench_kernels"), table, min(0.25 * options.seconds, 120))
    table.append(rows)
    names = options.workload or list(WORKLOADS)
    failed = 0
    for index, name in enumerate(names):
        if budget.left() < 30:
            print(f"{name} is skipped: out of time", flush=True)
            continue
        share = Budget(budget.left() / (len(names) - index))
        try:
            rows = compare(name, make_lockstep, share, folder, options, ceiling)
        except (Exception, SystemExit) as problem:
            print(f"{name} failed: {problem}", flush=True)
            failed = 1
            continue
        table.append(rows)
        for row in rows:
            print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return failed
