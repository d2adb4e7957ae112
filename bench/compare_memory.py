#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the measured host memory of training runs with the memory plan. Trains a few steps of twelve plain and of
twelve sharded configurations, with validation and snapshots. The measured value is VmHWM of the rank with the highest
one. With --append each configuration adds a row to bench/results/memory.csv."""

import argparse
import csv
import datetime
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from processor import commit, processor

ROOT = pathlib.Path(__file__).resolve().parent.parent

COMMON = ["data.dataset=sample", "train.steps=3", "train.warmup_steps=1", "train.eval_every=2", "snapshot.every_steps=2", "train.device=cpu",
          "train.threads=1", "data.train_split=0.99", "log.every_steps=100"]

# Name, ranks, settings. Each case is so large that the program's own memory does not hide an error of the plan.
CASES = [
    ("one rank", 1, "model.n_layer=4 model.n_head=6 model.n_embd=384 data.block_size=128 train.batch_size=16"),
    ("two ranks", 2, "model.n_layer=4 model.n_head=6 model.n_embd=384 data.block_size=128 train.batch_size=8"),
    ("bf16", 1, "model.n_layer=4 model.n_head=6 model.n_embd=384 data.block_size=128 train.batch_size=16 "
                "train.precision=bf16"),
    ("two ranks, bf16", 2, "model.n_layer=4 model.n_head=6 model.n_embd=384 data.block_size=128 train.batch_size=8 "
                           "train.precision=bf16"),
    ("accumulate 4", 1, "model.n_layer=4 model.n_head=6 model.n_embd=384 data.block_size=128 train.batch_size=32 "
                        "train.accumulate=4"),
    ("recompute attention, dropout", 1, "model.n_layer=6 model.n_head=6 model.n_embd=384 data.block_size=128 "
                                        "train.batch_size=16 train.recompute=attention model.dropout=0.1"),
    ("recompute block", 1, "model.n_layer=8 model.n_head=6 model.n_embd=384 data.block_size=128 "
                           "train.batch_size=24 train.recompute=block"),
    ("two ranks, recompute segments, dropout", 2, "model.n_layer=6 model.n_head=6 model.n_embd=384 "
     "data.block_size=128 train.batch_size=8 train.recompute=segments=2 model.dropout=0.1"),
    ("wide vocabulary", 1, "data.dataset=random_tokens model.vocab_size=50304 model.n_layer=2 model.n_head=4 "
                           "model.n_embd=128 data.block_size=64 train.batch_size=16 train.eval_every=-1"),
    ("wide vocabulary, logit rows", 1, "data.dataset=random_tokens model.vocab_size=50304 model.n_layer=2 "
     "model.n_head=4 model.n_embd=128 data.block_size=64 train.batch_size=16 train.logit_rows=128 "
     "train.eval_every=-1"),
    ("eight replicas on two ranks", 2, "model.n_layer=4 model.n_head=6 model.n_embd=384 data.block_size=64 "
                                       "train.batch_size=4 dist.replicas=8"),
    ("deep and narrow", 1, "model.n_layer=48 model.n_head=4 model.n_embd=64 data.block_size=128 "
                           "train.batch_size=16 train.sample_every=3"),
]

# 100 MiB of weights, so that sharded tensors are most of a rank's memory.
SHARDED = ("data.train_split=0.9995 model.n_layer=8 model.n_head=8 model.n_embd=512 data.block_size=64 "
           "train.batch_size=1 dist.replicas=4 ")

CASES += [("sharded: " + name, ranks, SHARDED + settings) for name, ranks, settings in [
    *[(f"{stage}, {words} ranks", ranks, f"dist.shard={stage}") for words, ranks in [("two", 2), ("four", 4)]
      for stage in ["optimizer", "gradients", "full"]],
    ("optimizer, four ranks, bf16", 4, "dist.shard=optimizer train.precision=bf16"),
    ("full, two ranks, bf16", 2, "dist.shard=full train.precision=bf16"),
    ("full, four ranks in groups of two", 4, "dist.shard=full dist.group=2"),
    ("gradients, two ranks, accumulate 2", 2, "dist.shard=gradients train.batch_size=2 train.accumulate=2"),
    ("full, four ranks, recompute block", 4, "dist.shard=full train.batch_size=4 train.recompute=block"),
    ("optimizer, two ranks, sixteen replicas", 2, "dist.shard=optimizer dist.replicas=16"),
]]

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
COLUMNS = ["date", "commit", "device", "cores", "case", "ranks", "settings", "planned_mib", "measured_mib", "ratio"]


def in_mib(number, unit):
    return float(number) * UNITS[unit] / 2**20


def measure(build, ranks, settings):
    """Returns the planned and the measured MiB of the rank that used most."""
    with tempfile.TemporaryDirectory() as folder:
        command = [build / "bin" / "train_gpt", *COMMON, *settings.split(), f"log.dir={folder}/run"]
        if ranks > 1:
            command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", *command]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **allowed})
    found = re.search(r"memory: at most ([\d.]+) (\w+) a rank, planned ([\d.]+) (\w+)", run.stdout + run.stderr)
    if run.returncode or not found:
        sys.exit(f"{' '.join(map(str, command))} exited with code {run.returncode}:\n{run.stdout}{run.stderr}")
    return in_mib(*found.groups()[2:]), in_mib(*found.groups()[:2])


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cpu")
    options.add_argument("--append", action="store_true", help="add rows to bench/results/memory.csv")
    options.add_argument("--only", default="", help="run only cases whose names contain this text")
    options = options.parse_args()
    about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
             "commit": commit(), "device": processor(), "cores": os.cpu_count()}
    rows = []
    for name, ranks, settings in CASES:
        if options.only not in name:
            continue
        planned, measured = measure(options.build, ranks, settings)
        print(f"{name:47} {planned:8.1f} MiB planned {measured:8.1f} MiB measured {measured / planned:6.3f}", flush=True)
        rows.append({**about, "case": name, "ranks": ranks, "settings": settings, "planned_mib": f"{planned:.4g}",
                     "measured_mib": f"{measured:.4g}", "ratio": f"{measured / planned:.3f}"})
    if options.append:
        path = ROOT / "bench" / "results" / "memory.csv"
        is_new = not path.exists()
        with open(path, "a", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if is_new:
                table.writeheader()
            table.writerows(rows)
    outside = [row["case"] for row in rows if abs(float(row["ratio"]) - 1) > 0.1]
    if outside:
        sys.exit(f"measured memory differs from the plan by more than 10 %: {', '.join(outside)}")


if __name__ == "__main__":
    main()
