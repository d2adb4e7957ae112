# SPDX-License-Identifier: Apache-2.0
"""Lockstep's side of the comparisons: runs of train_gpt and their initial weights."""

import configparser
import json
import os
import struct
import subprocess
from pathlib import Path

import numpy
import torch

REPOSITORY = Path(__file__).resolve().parent.parent


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


def steps_of(command, folder):
    """Runs a training in this folder. Returns the steps of its metrics.jsonl."""
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run([*command, f"log.dir={folder}"], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"Lockstep failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "step_ms" in line]


class Lockstep:
    """A train_gpt command with a configuration. It can run any number of times."""

    def __init__(self, launcher, program, config, overrides):
        self.command = [*launcher, str(program), "--config", str(REPOSITORY / "configs" / config), *overrides]
        self.command += ["train.warmup_steps=0", "train.eval_every=-1"]

    def train(self, folder, *overrides):
        """Trains in a new folder. Returns the steps of metrics.jsonl."""
        return steps_of([*self.command, "--fresh", *overrides], folder)

    def initial_weights(self, folder):
        """Returns the initial weights and the configuration of the run. The weights are from a snapshot after one step
        with a learning rate of zero."""
        self.train(folder, "train.steps=1", "train.learning_rate=0", "train.min_lr=0")
        config = configparser.ConfigParser(interpolation=None)
        config.read(folder / "config.ini")
        weights = load_safetensors(next(folder.glob("snapshots/step-*/model.safetensors")))
        # Snapshots store weights as [inputs, outputs], as transformers does. nn.Linear has [outputs, inputs].
        swapped = ("c_attn.weight", "c_fc.weight", "c_proj.weight")
        return {name: weight.T.contiguous() if name.endswith(swapped) else weight for name, weight in weights.items()}, config

    def measure(self, folder, steps, learning_rate):
        rates = [f"train.learning_rate={learning_rate}", f"train.min_lr={learning_rate}"]
        lines = self.train(folder, f"train.steps={steps}", *rates, "snapshot.path=none")
        return [line["loss"] for line in lines], [line["step_ms"] for line in lines]
