#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same training run under Lockstep and under PyTorch: tokens per second.

On the CPU (--device cpu, the default) beside DistributedDataParallel (gloo), eager and compiled: all start from the same
weights, take the same samples in the same order and must report the same losses. The programs alternate; the figure of a
run is its median step after warm-up, that of a program the median of its runs. One row per workload and mode of PyTorch is
appended to bench/results/compare_pytorch.csv. On AMD processors MKL takes slower kernels than they can run, unless it is
told otherwise; PyTorch runs with that done here, because a user who wants its best would.

On a GPU (--device cuda) beside PyTorch in every setting that is fast there, and kernel by kernel: bench/compare_gpu.py.
Rows go to bench/results/<GPU>.csv. Needs PyTorch and NumPy.
"""

import argparse
import configparser
import csv
import datetime
import functools
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "golden"))
import compare_gpu  # noqa: E402
from random_tokens import random_tokens  # noqa: E402
from pytorch_gpt import GPT, Shape, adamw, cross_entropy  # noqa: E402

WORKLOADS = {  # of configs/shakespeare_cpu.ini, a constant learning rate in both
    "4x4x128": ["dist.replicas=4", "train.batch_size=3"],
    "6x6x384": ["dist.replicas=4", "train.batch_size=2", "model.n_layer=6", "model.n_head=6", "model.n_embd=384",
                "data.block_size=256"],
    "12x12x768": ["dist.replicas=2", "train.batch_size=1", "model.n_layer=12", "model.n_head=12", "model.n_embd=768",
                  "data.block_size=256"],
}
STEPS = {"4x4x128": 200, "6x6x384": 20, "12x12x768": 12}
MODES = ("eager", "compiled")
GELU = {"gelu_tanh": "tanh", "gelu_erf": "none"}
SAME_STEPS, SAME_LOSS = 10, 1e-4  # rounding differs and training amplifies it: later only the mean counts
SAME_MEAN_LOSS = 0.05


def write_text(path, characters=1_115_394):
    """As long as tiny Shakespeare, with as many letters: each follows the last by fixed odds that fall as 1 / rank."""
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


def load_safetensors(path):
    data = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    for entry in header.values():
        assert entry["dtype"] == "F32", entry
    def tensor(entry):
        begin, end = entry["data_offsets"]
        return torch.from_numpy(numpy.frombuffer(data[start + begin:start + end], "<f4").reshape(entry["shape"]).copy())
    return {name: tensor(entry) for name, entry in header.items()}


class Lockstep:
    def __init__(self, launcher, program, config, overrides):
        self.command = [*launcher, str(program), "--config", str(REPOSITORY / "configs" / config), *overrides]
        self.command += ["train.warmup_steps=0", "train.eval_every=0"]

    def train(self, folder, *overrides):
        """Runs in a new folder; the lines of metrics.jsonl."""
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command = [*self.command, f"log.dir={folder}", "--fresh", *overrides]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"Lockstep failed ({done.returncode}):\n{done.stdout}{done.stderr}")
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if "step_ms" in line]

    def initial_weights(self, folder):
        """Those of a snapshot after one step at a learning rate of zero, and the configuration it ran with."""
        self.train(folder, "train.steps=1", "train.learning_rate=0", "train.min_lr=0")
        config = configparser.ConfigParser(interpolation=None)
        config.read(folder / "config.ini")
        weights = load_safetensors(next(folder.glob("snapshots/step-*/model.safetensors")))
        # Snapshots have [inputs, outputs], as transformers does; nn.Linear has [outputs, inputs].
        swapped = ("c_attn.weight", "c_fc.weight", "c_proj.weight")
        return {name: weight.T.contiguous() if name.endswith(swapped) else weight for name, weight in weights.items()}, config

    def measure(self, folder, steps, learning_rate):
        rates = [f"train.learning_rate={learning_rate}", f"train.min_lr={learning_rate}"]
        lines = self.train(folder, f"train.steps={steps}", *rates, "snapshot.path=none")
        return [line["loss"] for line in lines], [line["step_ms"] for line in lines]


def pytorch_rank(rank, job):
    """One process of DistributedDataParallel: its replicas' samples are its batch."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(job["port"]))
    torch.set_num_threads(job["threads"])
    torch.distributed.init_process_group("gloo", rank=rank, world_size=job["ranks"])
    tokens, config, steps = job["tokens"], job["config"], job["steps"]
    model = GPT(job["shape"])
    model.load_state_dict(job["weights"], strict=False)
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if job["mode"] == "compiled":
        model = torch.compile(model, dynamic=False)
    betas = (float(config["train"]["beta1"]), float(config["train"]["beta2"]))
    optimizer = adamw(model, job["learning_rate"], betas, float(config["train"]["weight_decay"]), fused=True)
    clip = float(config["train"]["grad_clip"])
    window = torch.arange(job["shape"].block_size)
    starts = sample_order(rank, job)

    losses, times = [], []
    for step in range(steps):
        begin = time.perf_counter()
        places = starts[step][:, None] + window
        loss = cross_entropy(model(tokens[places]), tokens[places + 1])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.detach())
        times.append(1e3 * (time.perf_counter() - begin))
    losses = torch.stack(losses)
    torch.distributed.all_reduce(losses)
    if rank == 0:
        job["result"].write_text(json.dumps([(losses / job["ranks"]).tolist(), times]))
    torch.distributed.destroy_process_group()


def sample_order(rank, job):
    """Where the windows of this rank's batch begin, [steps, samples of the rank]."""
    config, block = job["config"], job["shape"].block_size
    samples = (len(job["tokens"]) - 1) // block
    replicas, batch = int(config["dist"]["replicas"]), int(config["train"]["batch_size"])
    seed = int(config["train"]["seed"])
    mine = range(rank * replicas // job["ranks"], (rank + 1) * replicas // job["ranks"])
    orders = [list(DistributedSampler(range(samples), replicas, replica, True, seed)) for replica in mine]
    assert job["steps"] * batch <= len(orders[0]), "more than an epoch"
    windows = torch.tensor([sum((o[s * batch:(s + 1) * batch] for o in orders), []) for s in range(job["steps"])])
    later = random_tokens(windows.flatten().tolist(), 1, block, seed).reshape(windows.shape)
    return torch.clamp(windows * block + later, max=len(job["tokens"]) - 1 - block)


def measure_pytorch(job, mode):
    torch.multiprocessing.spawn(pytorch_rank, (job | {"mode": mode},), job["ranks"])
    return json.loads(job["result"].read_text())


def as_on_intel(folder):
    """A library to preload, in which MKL finds that it may use all that the processor has; None where it knows already."""
    if "AuthenticAMD" not in Path("/proc/cpuinfo").read_text():
        return None
    source, library = folder / "mkl.c", folder / "mkl.so"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def pytorch_job(options, text, weights, config, steps, folder):
    characters = text.read_text()
    ids = {letter: index for index, letter in enumerate(sorted(set(characters)))}
    trained = characters[: int(float(config["data"]["train_split"]) * len(characters))]
    shape = Shape(len(ids), int(config["data"]["block_size"]), int(config["model"]["n_layer"]),
                  int(config["model"]["n_head"]), int(config["model"]["n_embd"]), config.getboolean("model", "bias"),
                  config.getboolean("model", "tie_weights"), GELU[config["model"]["activation"]])
    return {"tokens": torch.tensor([ids[letter] for letter in trained]), "shape": shape, "weights": weights,
            "config": {name: dict(config[name]) for name in config.sections()}, "steps": steps,
            "ranks": options.ranks, "threads": options.threads, "port": options.port,
            "learning_rate": options.learning_rate, "result": folder / "pytorch.json"}


def check_losses(ours, theirs):
    """The largest difference in the first steps. Stops the program if the two do not train the same model."""
    first = max(abs(a - b) for a, b in zip(ours[:SAME_STEPS], theirs[:SAME_STEPS]))
    tail = max(1, len(ours) // 4)
    late = abs(statistics.mean(ours[-tail:]) - statistics.mean(theirs[-tail:]))
    if first > SAME_LOSS or late > SAME_MEAN_LOSS:
        raise SystemExit(f"the losses differ: by {first:.2g} in the first steps, by {late:.2g} in the mean of the last "
                         f"{tail}\nLockstep {ours[:SAME_STEPS]}\nPyTorch  {theirs[:SAME_STEPS]}")
    return first


def steady_ms(times):
    return statistics.median(times[max(2, len(times) // 10):])


def compare(name, options, text, folder):
    steps = options.steps or STEPS[name]
    launcher = ["mpirun", "-np", str(options.ranks), "--bind-to", "none"]
    settings = ["train.device=cpu", f"data.dataset={text}", f"train.threads={options.threads}", *WORKLOADS[name]]
    lockstep = Lockstep(launcher, options.program, "shakespeare_cpu.ini", settings)
    weights, config = lockstep.initial_weights(folder / f"{name}_initial")
    job = pytorch_job(options, text, weights, config, steps, folder)
    ours, theirs, difference = [], {mode: [] for mode in options.mode}, 0.0
    for repeat in range(options.repeats):
        our_losses, our_times = lockstep.measure(folder / f"{name}_{repeat}", steps, options.learning_rate)
        ours.append(steady_ms(our_times))
        for mode, medians in theirs.items():
            losses, times = measure_pytorch(job, mode)
            difference = max(difference, check_losses(our_losses, losses))
            medians.append(steady_ms(times))
        said = ", ".join(f"PyTorch {mode} {medians[-1]:.2f}" for mode, medians in theirs.items())
        print(f"{name} run {repeat + 1}: Lockstep {ours[-1]:.2f}, {said} ms a step", flush=True)
    tokens = int(config["dist"]["replicas"]) * int(config["train"]["batch_size"]) * job["shape"].block_size
    for mode, medians in theirs.items():
        ours_ms, theirs_ms = statistics.median(ours), statistics.median(medians)
        yield {"pytorch": f"{torch.__version__} {mode}", "ranks": options.ranks, "threads": options.threads,
               "repeats": options.repeats, "workload": name, "steps": steps,
               "lockstep_ms": round(ours_ms, 2), "pytorch_ms": round(theirs_ms, 2),
               "lockstep_tokens_per_s": round(1e3 * tokens / ours_ms), "ratio": round(theirs_ms / ours_ms, 3),
               "pytorch_tokens_per_s": round(1e3 * tokens / theirs_ms), "loss_difference": f"{difference:.1e}"}


def surroundings():
    def output(*command):
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in output("lscpu").splitlines() if "Model name" in line), "")
    return {"date": datetime.date.today().isoformat(), "commit": output("git", "describe", "--always", "--dirty"),
            "cpu": cpu, "cores": len(os.sched_getaffinity(0)), "load_before": round(os.getloadavg()[0], 1)}


def append(row):
    path = REPOSITORY / "bench" / "results" / "compare_pytorch.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)


def compare_on_cpu(options, folder):
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    text = folder / "text.txt"
    write_text(text)
    for name in options.workload or WORKLOADS:
        before = surroundings()
        for figures in compare(name, options, text, folder):
            row = before | figures
            append(row)
            print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return 0


def compare_on_gpu(options, folder):
    return compare_gpu.run(options, functools.partial(Lockstep, [], options.program), folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--workload", action="append", help="may be repeated; all if absent: "
                        f"{', '.join(WORKLOADS)} on the CPU; {', '.join(compare_gpu.WORKLOADS)} on a GPU")
    parser.add_argument("--mode", action="append", choices=MODES, help="of PyTorch on the CPU; may be repeated (both)")
    parser.add_argument("--ranks", type=int, default=2, help="on the CPU (2)")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU: per rank, in both (1)")
    parser.add_argument("--steps", type=int, default=0, help="on the CPU: of each run; 0, the default: by workload")
    parser.add_argument("--seconds", type=float, default=600, help="on a GPU: for everything (600)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each program (5)")
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="constant (3e-4)")
    parser.add_argument("--port", type=int, default=29411, help="for PyTorch's ranks to meet (29411)")
    parser.add_argument("--program", type=Path, help="train_gpt (build/cpu/bin or build/cuda/bin)")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU")
    known = compare_gpu.WORKLOADS if options.device == "cuda" else WORKLOADS
    if unknown := set(options.workload or []) - set(known):
        parser.error(f"--workload {unknown.pop()}: there are {', '.join(known)}")
    options.program = options.program or REPOSITORY / f"build/{options.device}/bin/train_gpt"
    options.mode = options.mode or MODES
    with tempfile.TemporaryDirectory() as folder:
        if options.device == "cpu" and (library := as_on_intel(Path(folder))):
            os.environ["LD_PRELOAD"] = str(library)  # of the programs that are started from here on
        return (compare_on_gpu if options.device == "cuda" else compare_on_cpu)(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
