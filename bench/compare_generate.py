#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares text generation in Lockstep and in transformers: milliseconds per token on the CPU, in fp32.

Both programs generate greedily with a key-value cache. They have random weights of the same shape and the same number of
threads, and they alternate. A figure is the time between the tokens after the first. It excludes the prompt. A program's
figure is the median of its rounds. transformers runs without gradients in three settings: its default (eager), with a
static cache, and with a static cache and a compiled forward pass. A setting that fails is reported and skipped. Other
programs on the cores make PyTorch's threads wait for each other. Its figures are then meaningless. One row per workload,
batch and setting is appended to bench/results/compare_generate.csv. Needs PyTorch and transformers.
"""

import argparse
import csv
import datetime
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import transformers
from processor import commit, processor

REPOSITORY = Path(__file__).resolve().parent.parent
WORKLOADS = {  # the GPT-2s of bench_generate
    "12x12x768": {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50304},
    "4x4x128": {"n_layer": 4, "n_head": 4, "n_embd": 128, "n_positions": 256, "vocab_size": 65},
}
SETTINGS = ("eager", "static", "compiled")


class Transformers:
    def __init__(self, workload, batch, setting, options):
        torch.manual_seed(0)
        config = transformers.GPT2Config(**WORKLOADS[workload], bos_token_id=None, eos_token_id=None)
        self.model = transformers.GPT2LMHeadModel(config).eval()
        self.ids = torch.randint(config.vocab_size, (batch, options.prompt))
        self.tokens = options.tokens
        self.arguments = {} if setting == "eager" else {"cache_implementation": "static"}
        if setting == "compiled":
            self.model.forward = torch.compile(self.model.forward, dynamic=False)

    def _seconds(self, tokens):
        begin = time.perf_counter()
        with torch.inference_mode():
            written = self.model.generate(self.ids, attention_mask=torch.ones_like(self.ids), do_sample=False,
                                          min_new_tokens=tokens, max_new_tokens=tokens, pad_token_id=0, **self.arguments)
        seconds = time.perf_counter() - begin
        assert written.shape[1] == self.ids.shape[1] + tokens
        return seconds

    def ms_a_step(self):
        return 1e3 * (self._seconds(self.tokens) - self._seconds(1)) / (self.tokens - 1)


def lockstep(workload, batch, options):
    """Returns the milliseconds of a step and of reading the weights once."""
    command = [options.program, "--workload", workload, "--batch", str(batch), "--prompt", str(options.prompt),
               "--tokens", str(options.tokens), "--threads", str(options.threads), "--rounds", "1"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    row = dict(zip(lines[-2].split(), lines[-1].split()))
    return float(row["ms"]), float(row["bound_ms"])


def surroundings(options):
    return {"date": datetime.date.today().isoformat(), "commit": commit(), "cpu": processor(), "cores": os.cpu_count(),
            "load_before": round(os.getloadavg()[0], 2), "pytorch": torch.__version__,
            "transformers": transformers.__version__, "threads": options.threads}


def append(row):
    path = REPOSITORY / "bench" / "results" / "compare_generate.csv"
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def compare(workload, batch, setting, options):
    place = surroundings(options)
    try:
        theirs = Transformers(workload, batch, setting, options)
        for _ in range(2):
            theirs.ms_a_step()  # warm-up
    except Exception as error:  # noqa: BLE001: any error of a setting is reported
        print(f"{workload} batch {batch} {setting}: skipped because it failed: {str(error).splitlines()[0]}", flush=True)
        return
    ours_ms, bound_ms, theirs_ms = [], [], []
    for _ in range(options.repeats):
        ours, bound = lockstep(workload, batch, options)
        ours_ms.append(ours)
        bound_ms.append(bound)
        theirs_ms.append(theirs.ms_a_step())
    ours, bound, theirs = (statistics.median(values) for values in (ours_ms, bound_ms, theirs_ms))
    print(f"{workload} batch {batch}: {ours:.3f} ms per step, reading the weights {bound:.3f} ms; "
          f"transformers {setting} {theirs:.3f} ms, {theirs / ours:.2f} times as long", flush=True)
    row = place | {"repeats": options.repeats, "workload": workload, "batch": batch,
                   "tokens": f"{options.prompt}+{options.tokens}", "setting": setting, "lockstep_ms": f"{ours:.3f}",
                   "read_ms": f"{bound:.3f}", "transformers_ms": f"{theirs:.3f}", "ratio": f"{theirs / ours:.3f}"}
    if not options.dry:
        append(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="may be repeated (default all)")
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="may be repeated (default all)")
    parser.add_argument("--batch", type=int, action="append", help="texts per batch (default 1 and 8)")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of each prompt (16)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate per text (64)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of each program (all cores)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of both programs (5)")
    parser.add_argument("--program", type=Path, default=REPOSITORY / "build/cpu/bin/bench_generate")
    parser.add_argument("--dry", action="store_true", help="append nothing")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    for workload in options.workload or WORKLOADS:
        for batch in options.batch or (1, 8):
            for setting in options.setting or SETTINGS:
                compare(workload, batch, setting, options)


if __name__ == "__main__":
    sys.exit(main())
