# SPDX-License-Identifier: Apache-2.0
"""One rank of DistributedDataParallel on the CPU. compare_cpu.py starts it: `RANK=0 WORLD_SIZE=2 ... pytorch_ddp.py job.pt`."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "golden"))
from pytorch_gpt import GPT, adamw, cross_entropy  # noqa: E402
from random_tokens import random_tokens  # noqa: E402


def sample_order(rank, job):
    """Returns the start positions of the windows in this rank's batches: [steps, samples of the rank]."""
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


class Llama(nn.Module):
    """The model of transformers that this folder holds. It maps ids to logits."""

    def __init__(self, folder):
        super().__init__()
        from transformers import AutoModelForCausalLM
        self.model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32)
        self.model.config.use_cache = False
        self.model.train()

    def forward(self, ids):
        return self.model(ids).logits


def model_of(job):
    if job["kind"] == "llama":
        return Llama(job["folder"])
    model = GPT(job["shape"])
    if job["weights"]:
        model.load_state_dict(job["weights"], strict=False)
    return model


def model_steps(rank, job):
    """Trains a language model and yields the loss of each step."""
    tokens, config = job["tokens"], job["config"]
    model = model_of(job)
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if job["mode"] == "compiled":
        model = torch.compile(model, dynamic=False)
    betas = (float(config["train"]["beta1"]), float(config["train"]["beta2"]))
    optimizer = adamw(model, job["learning_rate"], betas, float(config["train"]["weight_decay"]), fused=True)
    clip = float(config["train"]["grad_clip"])
    window = torch.arange(job["shape"].block_size)
    starts = sample_order(rank, job)
    autocast = torch.autocast("cpu", torch.bfloat16) if job["precision"] == "bf16" else contextlib.nullcontext()
    for step in range(job["steps"]):
        places = starts[step][:, None] + window
        with autocast:
            loss = cross_entropy(model(tokens[places]).float(), tokens[places + 1])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        yield loss.detach()


def mlp_steps(rank, job):
    """Trains the model of PyTorch's DDP tutorials and yields the loss of each step. It has Linear(20, 1), SGD and 2048
    random samples."""
    torch.manual_seed(0)
    inputs, targets = torch.rand(2048, 20), torch.rand(2048, 1)
    data = torch.utils.data.TensorDataset(inputs, targets)
    sampler = DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(job["steps"] // len(loader)):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            yield loss.detach()


def main():
    job = torch.load(sys.argv[1], weights_only=False)
    torch.set_num_threads(job["threads"])
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    losses, times, first = [], [], None
    begin = time.perf_counter()
    for loss in (mlp_steps if job["kind"] == "mlp" else model_steps)(rank, job):
        first = first or time.time()
        end = time.perf_counter()
        losses.append(loss)
        times.append(1e3 * (end - begin))
        begin = end
    losses = torch.stack(losses)
    torch.distributed.all_reduce(losses)
    if rank == 0:
        result = {"losses": (losses / job["ranks"]).tolist(), "times": times, "first": first}
        Path(job["result"]).write_text(json.dumps(result))
    torch.distributed.barrier()
    os._exit(0)  # a normal exit sometimes crashes while it waits for threads of gloo and of the compiler


if __name__ == "__main__":
    main()
