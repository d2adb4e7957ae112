# SPDX-License-Identifier: Apache-2.0
"""Compares Lockstep with PyTorch's DistributedDataParallel (gloo) on the CPU. PyTorch runs in its fast settings.

Language models start from the same weights in both programs. PyTorch's Llama is that of transformers, with its fused
attention. Both take the same samples in the same order and must report the
same losses. Each Lockstep rank computes one replica with the batch of one PyTorch rank. The programs alternate. A run's
figure is its median step after warm-up. A program's figure is the median of its runs. The faster of eager and compiled
steps counts. fp32 is compared with fp32, and bf16 with autocast. On AMD processors MKL chooses slow kernels by default.
The C library returns memory to the system that the next operation requests again. This script corrects both for PyTorch,
because a user who wants its best speed would. Rows are appended to bench/results/compare_cpu.csv.
"""

import csv
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from lockstep_run import REPOSITORY, Lockstep, steps_of
from processor import commit, is_amd, processor
from pytorch_gpt import Shape

TABLE = REPOSITORY / "bench" / "results" / "compare_cpu.csv"
MODES = ("eager", "compiled")
PRECISIONS = ("fp32", "bf16")
GELU = {"gelu_tanh": "tanh", "gelu_erf": "none"}
COMPARED_STEPS = 10  # training amplifies rounding differences, so later steps are compared only by their mean
SAME_LOSS = {"fp32": 1e-4, "bf16": 2e-2}
SAME_MEAN_LOSS = {"fp32": 0.05, "bf16": 0.1}
MLP_STEPS = {"Lockstep": 64_000, "PyTorch": 3_200}
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}


@dataclass(frozen=True)
class Workload:
    """A model of a shipped configuration and the work of one rank in a step. The learning rate is constant."""

    layers: int
    heads: int
    width: int
    block: int
    batch: int
    steps: int
    key_heads: int = 0  # of a Llama; 0: a GPT-2

    @property
    def config(self):
        return "llama_cpu.ini" if self.key_heads else "shakespeare_cpu.ini"

    def __str__(self):
        return (f"{'Llama, ' if self.key_heads else ''}{self.layers} layers, {self.heads} heads, {self.width} wide, {self.batch} × {self.block} tokens a rank")

    def keys(self, ranks):
        return [f"model.n_layer={self.layers}", f"model.n_head={self.heads}", f"model.n_embd={self.width}",
                f"data.block_size={self.block}", f"train.batch_size={self.batch}", f"dist.replicas={ranks}",
                *([f"model.n_kv_head={self.key_heads}"] if self.key_heads else [])]


WORKLOADS = {"4x4x128": Workload(4, 4, 128, 64, 6, 200), "6x6x384": Workload(6, 6, 384, 256, 4, 16),
             "12x12x768": Workload(12, 12, 768, 256, 1, 10), "llama-6x6x384": Workload(6, 6, 384, 256, 4, 16, key_heads=2)}
OTHERS = {"train_mlp": "`train_mlp`, the job of PyTorch's tutorials",
          "start-up": "from the start of the processes to the end of the first step, 4 layers"}


def write_text(path, characters=1_115_394):
    """Writes a text with the length of tiny Shakespeare and 65 letters, as it has. Each letter has fixed odds to follow
    another. The odds fall as 1 / rank."""
    generator = random.Random(0)
    alphabet = [chr(code) for code in range(33, 33 + 65)]
    odds = [1 / rank for rank in range(1, 66)]
    followers = {letter: generator.sample(alphabet, 65) for letter in alphabet}
    draws = {letter: iter(()) for letter in alphabet}
    text = list(alphabet)
    while len(text) < characters:
        letter = next(draws[text[-1]], None)
        if letter is None:
            draws[text[-1]] = iter(generator.choices(followers[text[-1]], odds, k=4096))
        else:
            text.append(letter)
    path.write_text("".join(text))


class PyTorch:
    """The ranks of pytorch_ddp.py, in the environment that is fastest for PyTorch."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.environment = os.environ | KEEP_MEMORY | {
            "OMP_NUM_THREADS": str(options.threads), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port),
            "WORLD_SIZE": str(options.ranks)}
        self.settings = "memory kept"
        if is_amd():
            source, library = folder / "mkl.c", folder / "mkl.so"
            source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            self.environment["LD_PRELOAD"] = str(library)
            self.settings += ", MKL unlocked"

    def run(self, job):
        """Runs a job. Returns {"losses", "times" in ms, "first": seconds from the start to the first finished step}."""
        path = self.folder / "job.pt"
        result = self.folder / "pytorch.json"
        result.unlink(missing_ok=True)
        torch.save(job | {"ranks": self.options.ranks, "threads": self.options.threads, "result": str(result)}, path)
        command = [sys.executable, str(REPOSITORY / "bench" / "pytorch_ddp.py"), str(path)]
        begin = time.time()
        ranks = [subprocess.Popen(command, env=self.environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
                 for rank in range(self.options.ranks)]
        while any(rank.poll() is None for rank in ranks):
            if any(rank.poll() for rank in ranks):
                for rank in ranks:
                    rank.kill()
            time.sleep(0.05)
        if any(rank.returncode for rank in ranks):
            raise SystemExit("a PyTorch rank failed; its error is printed above")
        found = json.loads(result.read_text())
        return found | {"first": found["first"] - begin}


def gpt_job(text, weights, config, steps, options):
    characters = text.read_text()
    ids = {letter: index for index, letter in enumerate(sorted(set(characters)))}
    trained = characters[: int(float(config["data"]["train_split"]) * len(characters))]
    shape = Shape(len(ids), int(config["data"]["block_size"]), int(config["model"]["n_layer"]),
                  int(config["model"]["n_head"]), int(config["model"]["n_embd"]), config.getboolean("model", "bias"),
                  config.getboolean("model", "tie_weights"), GELU[config["model"]["activation"]])
    return {"kind": "gpt", "tokens": torch.tensor([ids[letter] for letter in trained]), "shape": shape,
            "weights": weights, "config": {name: dict(config[name]) for name in config.sections()}, "steps": steps,
            "learning_rate": options.learning_rate, "mode": "eager", "precision": "fp32"}


def check_losses(ours, theirs, precision):
    """Returns the largest difference in the first steps. Exits if the two programs do not train the same model."""
    first = max(abs(a - b) for a, b in zip(ours[:COMPARED_STEPS], theirs[:COMPARED_STEPS]))
    tail = max(1, len(ours) // 4)
    late = abs(statistics.mean(ours[-tail:]) - statistics.mean(theirs[-tail:]))
    if first > SAME_LOSS[precision] or late > SAME_MEAN_LOSS[precision]:
        raise SystemExit(f"the losses differ: by {first:.2g} in the first steps, by {late:.2g} in the mean of the last "
                         f"{tail}\nLockstep {ours[:COMPARED_STEPS]}\nPyTorch  {theirs[:COMPARED_STEPS]}")
    return first


def steady_ms(times):
    return statistics.median(times[max(2, len(times) // 10):])


class Comparison:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.launcher = ["mpirun", "-np", str(options.ranks), "--bind-to", "none"]
        self.pytorch = PyTorch(options, folder)
        self.text = folder / "text.txt"
        write_text(self.text)
        self.places = iter(range(10**6))

    def place(self):
        return self.folder / f"run_{next(self.places)}"

    def gpt(self, name, precision):
        """Yields the name, Lockstep's ms, PyTorch's ms and the loss difference for each PyTorch setting."""
        options, workload = self.options, WORKLOADS[name]
        steps = options.steps or workload.steps
        keys = ["train.device=cpu", f"data.dataset={self.text}", f"train.threads={options.threads}",
                *workload.keys(options.ranks), f"train.precision={precision}"]
        lockstep = Lockstep(self.launcher, options.program, workload.config, keys)
        begun = self.place()
        weights, config = lockstep.initial_weights(begun)
        job = gpt_job(self.text, weights, config, steps, options) | {"precision": precision}
        if workload.key_heads:
            job |= {"kind": "llama", "folder": str(next(begun.glob("snapshots/step-*")))}
        ours, theirs, difference = [], {mode: [] for mode in options.mode}, 0.0
        for repeat in range(options.repeats):
            our_losses, our_times = lockstep.measure(self.place(), steps, options.learning_rate)
            ours.append(steady_ms(our_times))
            for mode, medians in theirs.items():
                found = self.pytorch.run(job | {"mode": mode})
                difference = max(difference, check_losses(our_losses, found["losses"], precision))
                medians.append(steady_ms(found["times"]))
            said = ", ".join(f"PyTorch {mode} {medians[-1]:.2f}" for mode, medians in theirs.items())
            print(f"{name} {precision} {repeat + 1}: Lockstep {ours[-1]:.2f}, {said} ms a step", flush=True)
        for mode, medians in theirs.items():
            yield mode, statistics.median(ours), statistics.median(medians), f"{difference:.1e}"

    def train_mlp(self):
        """Yields steps per second over the steps after the first tenth. Printing and saving are disabled."""
        ours, theirs = [], []
        for repeat in range(self.options.repeats):
            epochs = str(MLP_STEPS["Lockstep"] * self.options.ranks // 64)
            steps = steps_of([*self.launcher, str(self.options.program.parent / "train_mlp"), epochs, epochs,
                              "--batch_size", "32", "train.device=cpu", f"dist.replicas={self.options.ranks}",
                              f"train.threads={self.options.threads}", "train.learning_rate=1e-3", "train.min_lr=1e-3",
                              "snapshot.path=none"], self.place())
            late = steps[len(steps) // 10:]
            ours.append((len(late) - 1) / (late[-1]["time"] - late[0]["time"]))
            found = self.pytorch.run({"kind": "mlp", "steps": MLP_STEPS["PyTorch"]})
            late = found["times"][len(found["times"]) // 10:]
            theirs.append(1e3 * len(late) / sum(late))
            print(f"train_mlp {repeat + 1}: Lockstep {ours[-1]:.0f}, PyTorch {theirs[-1]:.0f} steps/s", flush=True)
        yield "eager", statistics.median(ours), statistics.median(theirs), ""

    def start_up(self):
        """Yields the seconds from the start of the launcher to the end of the first step of 4x4x128."""
        keys = ["train.device=cpu", f"data.dataset={self.text}", f"train.threads={self.options.threads}",
                *WORKLOADS["4x4x128"].keys(self.options.ranks)]
        lockstep = Lockstep(self.launcher, self.options.program, "shakespeare_cpu.ini", keys)
        _, config = lockstep.initial_weights(self.place())
        job = gpt_job(self.text, None, config, 2, self.options)
        ours, theirs = [], []
        for repeat in range(self.options.repeats):
            begin = time.time()
            lines = lockstep.train(self.place(), "train.steps=2", "snapshot.path=none")
            ours.append(lines[0]["time"] - begin)
            theirs.append(self.pytorch.run(job)["first"])
            print(f"start-up {repeat + 1}: Lockstep {ours[-1]:.2f}, PyTorch {theirs[-1]:.2f} s", flush=True)
        yield "eager", statistics.median(ours), statistics.median(theirs), ""

    def rows(self, name):
        options = self.options
        for precision in options.precision if name in WORKLOADS else ("fp32",):
            found = (self.gpt(name, precision) if name in WORKLOADS
                     else self.train_mlp() if name == "train_mlp" else self.start_up())
            before = surroundings()
            for mode, ours, theirs, difference in found:
                ratio = ours / theirs if name == "train_mlp" else theirs / ours
                unit = {"train_mlp": "steps/s", "start-up": "s"}.get(name, "ms/step")
                yield before | {
                    "ranks": options.ranks, "threads": options.threads, "repeats": options.repeats, "workload": name,
                    "precision": precision, "pytorch": torch.__version__, "mode": mode,
                    "settings": self.pytorch.settings, "unit": unit, "lockstep_value": f"{ours:.4g}",
                    "pytorch_value": f"{theirs:.4g}", "ratio": f"{ratio:.3f}", "loss_difference": difference}


def surroundings():
    return {"date": datetime.date.today().isoformat(), "commit": commit(), "cpu": processor(),
            "cores": len(os.sched_getaffinity(0)), "load_before": round(os.getloadavg()[0], 1)}


def append(row):
    with TABLE.open("a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)


def readme_table(cpu=None):
    """Returns a table of the newest rows on `cpu`, or on the processor of the last row. Each job has a row with PyTorch's
    fastest setting. The weakest ratio is first."""
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    processors = sorted({row["cpu"] for row in rows})
    if cpu is not None and cpu not in processors:
        raise SystemExit(f"{TABLE} has no row for '{cpu}'; it has: {', '.join(processors)}")
    last = {key: [row for row in rows if cpu in (None, row["cpu"])][-1][key] for key in ("cpu", "ranks", "threads")}
    rows = [row for row in rows if all(row[key] == value for key, value in last.items())]
    newest = {(row["workload"], row["precision"], row["mode"]): row for row in rows}
    fastest = {}
    for (workload, precision, _), row in newest.items():
        best = fastest.setdefault((workload, precision), row)
        if float(row["ratio"]) < float(best["ratio"]):
            fastest[workload, precision] = row
    lines = [f"{rows[-1]['date']}, {last['cpu']}, {last['ranks']} ranks with {last['threads']} thread each:", "",
             "| job | Lockstep | PyTorch DDP | ratio |", "|---|---|---|---|"]
    for row in sorted(fastest.values(), key=lambda row: float(row["ratio"])):
        name = row["workload"]
        job = f"{WORKLOADS[name]}, {row['precision']}" if name in WORKLOADS else OTHERS[name]
        lines.append(f"| {job} | {float(row['lockstep_value']):,g} {row['unit']} "
                     f"| {float(row['pytorch_value']):,g} {row['unit']}, {row['mode']} | {float(row['ratio']):.2f} |")
    return "\n".join(lines)


def run(options, folder):
    comparison = Comparison(options, folder)
    for name in options.workload or [*WORKLOADS, *OTHERS]:
        for row in comparison.rows(name):
            append(row)
            print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    print(readme_table())
    return 0
