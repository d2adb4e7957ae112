# SPDX-License-Identifier: Apache-2.0
"""A GPT training step in PyTorch, in the settings that are fast on a GPU. It also runs on the CPU, for tests."""

import contextlib
import itertools
import time
from dataclasses import dataclass

import torch
from pytorch_gpt import GPT, adamw, cross_entropy
from torch.nn.attention import SDPBackend, sdpa_kernel

MODES = {"eager": None, "compile": "default", "autotune": "max-autotune-no-cudagraphs",
         "reduce_overhead": "reduce-overhead", "graph": "default"}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}
UNRECORDED_STEPS = 3  # steps before the capture, for compilation and lazily created states


@dataclass(frozen=True)
class Setting:
    precision: str  # autocast: fp32 parameters; masters: bf16 parameters with fp32 masters
    mode: str  # one of MODES; graph: compiled, with the whole step in one CUDA graph
    attention: str  # one of BACKENDS

    def __str__(self):
        return f"{self.precision} {self.mode} {self.attention}"


def settings():
    """Returns all combinations. The most promising are first, so that a short run measures them."""
    def rank(setting):
        order = [["compile", "graph", "eager", "reduce_overhead", "autotune"], ["cudnn", "flash"],
                 ["autocast", "masters"]]
        return [names.index(name) for names, name in zip(order, (setting.mode, setting.attention, setting.precision))]
    combinations = itertools.product(("autocast", "masters"), MODES, ("cudnn", "flash"))
    return sorted((Setting(*combination) for combination in combinations), key=rank)


class Masters:
    """The fp32 masters that the optimizer updates, and the model's bf16 copies."""

    def __init__(self, model):
        self.values = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
        model.bfloat16()
        self.copies = list(model.parameters())

    def parameters(self):
        return iter(self.values)

    def take_gradients(self):
        for value, copy in zip(self.values, self.copies):
            value.grad = copy.grad.float()
            copy.grad = None

    def renew_copies(self):
        with torch.no_grad():
            torch._foreach_copy_(self.copies, self.values)


class Training:
    """The training of one model in one setting. `losses` has every step, including those before the first measurement."""

    def __init__(self, shape, weights, optimizer, setting, device="cuda"):
        self.setting, self.device, self.on_gpu = setting, device, device == "cuda"
        self.model = GPT(shape).to(device)
        self.model.load_state_dict(weights, strict=False)
        self.masters = Masters(self.model) if setting.precision == "masters" else None
        self.clip = optimizer["grad_clip"]
        options = {"fused": True, "capturable": True} if self.on_gpu else {}
        self.optimizer = adamw(self.masters or self.model, optimizer["learning_rate"], optimizer["betas"],
                               optimizer["weight_decay"], **options)
        self.loss = self._loss
        if MODES[setting.mode]:
            self.loss = torch.compile(self._loss, dynamic=False, fullgraph=True, mode=MODES[setting.mode])
        self.graph, self.taken, self.losses = None, 0, []

    def _loss(self, tokens):
        # The loss needs fp32 logits. A compiled step converts them in registers; an eager step makes a copy.
        with torch.autocast(self.device, torch.bfloat16, enabled=self.masters is None):
            return cross_entropy(self.model(tokens[:, :-1]).float(), tokens[:, 1:])

    def _update(self, tokens):
        with sdpa_kernel(BACKENDS[self.setting.attention]):
            loss = self.loss(tokens)
            loss.backward()
        if self.masters:
            self.masters.take_gradients()
        updated = list((self.masters or self.model).parameters())
        torch.nn.utils.clip_grad_norm_(updated, self.clip, foreach=True if self.on_gpu else None)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.masters:
            self.masters.renew_copies()
        return loss.detach()

    def _capture(self, tokens):
        self.tokens = tokens.clone()
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.captured_loss = self._update(self.tokens)

    def step(self, tokens):
        """Trains one step on tokens [batch, time + 1]. Appends the loss before the update to self.losses."""
        self.taken += 1
        if self.setting.mode != "graph" or self.taken <= UNRECORDED_STEPS:
            if self.setting.mode == "reduce_overhead":
                torch.compiler.cudagraph_mark_step_begin()
            self.losses.append(self._update(tokens).clone())
            return
        if self.graph is None:
            self._capture(tokens)
        self.tokens.copy_(tokens)
        self.graph.replay()
        self.losses.append(self.captured_loss.clone())

    def block(self, batches):
        """Trains on these batches. Returns the milliseconds per step."""
        with self._clock() as elapsed_ms:
            for tokens in batches:
                self.step(tokens)
        return elapsed_ms() / len(batches)

    @contextlib.contextmanager
    def _clock(self):
        if not self.on_gpu:
            begin = time.perf_counter()
            yield lambda: 1e3 * (time.perf_counter() - begin)
            return
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()

        def elapsed_ms():
            end.record()
            end.synchronize()
            return begin.elapsed_time(end)
        yield elapsed_ms
