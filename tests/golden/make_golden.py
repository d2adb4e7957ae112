#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden values of the C++ tests into its own folder. README.md describes the files and how to
read them."""

import copy
import json
import struct
from fnmatch import fnmatch
from pathlib import Path

import torch
from torch.nn import functional as F

from pytorch_gpt import GPT, Shape, adamw, cross_entropy

FOLDER = Path(__file__).resolve().parent
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"}
PRECISIONS = (torch.float64, torch.float32)
MODELS = {
    "gpt_tied": Shape(vocab_size=37, block_size=13, n_layer=2, n_head=3, n_embd=24),
    "gpt_untied": Shape(41, 16, 2, 4, 20, bias=False, tie_weights=False, gelu="none"),
}
STEPS, BATCH = 10, 3
LEARNING_RATE, BETAS, WEIGHT_DECAY, CLIP = 1e-3, (0.9, 0.95), 0.1, 2.0  # some steps are clipped, some are not


def save_safetensors(path, tensors, metadata):
    """Writes 8 bytes of header length, a JSON header and raw values. The widest dtypes come first, so that
    every tensor is aligned."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, body = {"__metadata__": metadata}, b""
    for name in names:
        values = tensors[name].detach().contiguous()
        data = values.numpy().tobytes()
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": DTYPES[values.dtype], "shape": list(values.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def compare(facts, exact, rounded):
    """Adds the float64 values. Adds as `.error` the distance of the float32 values from them: maximum,
    root mean square."""
    for name, value in exact.items():
        assert value.dtype == torch.float64 and rounded[name].dtype == torch.float32, name
        deviation = (rounded[name].double() - value).abs()
        facts[name] = value
        facts[name + ".error"] = torch.stack([deviation.max(), deviation.square().mean().sqrt()])


def make_model(shape):
    """Returns a model without parameters that are zero or one. Every term of every gradient then has an
    effect."""
    model = GPT(shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            offset = 1.0 if ".ln_" in name and name.endswith("weight") else 0.0
            parameter.copy_(offset + 0.12 * torch.randn(parameter.shape))
    return model


def train(initial, dtype, inputs, targets):
    """Runs forward and backward on batch 0, then ten steps. The first step is on the same batch.

    Also returns the clipped gradients and the roots of the bias-corrected second moments of every step."""
    model = copy.deepcopy(initial).to(dtype)
    parameters = dict(model.named_parameters())
    optimizer = adamw(model, LEARNING_RATE, BETAS, WEIGHT_DECAY, foreach=False)
    result, losses, norms, steps = {"logits": model(inputs[0])}, [], [], []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(model(inputs[step]), targets[step])
        loss.backward()
        if step == 0:
            result |= {"gradient." + name: p.grad.clone() for name, p in parameters.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP))
        losses.append(loss)
        optimizer.step()
        correction = 1 - BETAS[1] ** (step + 1)
        roots = {name: (optimizer.state[p]["exp_avg_sq"] / correction).sqrt() for name, p in parameters.items()}
        steps.append({name: (p.grad.double(), roots[name]) for name, p in parameters.items()})
    result |= {"losses": torch.stack(losses), "gradient_norms": torch.stack(norms)}
    return result | {"final." + name: p for name, p in parameters.items()}, steps


def train_in_16_bits(initial, dtype, inputs, targets):
    """Runs the same steps with activations of `dtype`, computed from copies of float32 parameters.

    Lockstep computes them like this. PyTorch's autocast keeps more in float32. float16 uses a GradScaler
    with the usual constants."""
    model = copy.deepcopy(initial)
    parameters = dict(model.named_parameters())
    optimizer = adamw(model, LEARNING_RATE, BETAS, WEIGHT_DECAY, foreach=False)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    result, losses, norms = {}, [], []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        copies = {name: p.to(dtype) for name, p in parameters.items()}
        logits = torch.func.functional_call(model, copies, (inputs[step],), tie_weights=True)
        assert logits.dtype == dtype
        loss = cross_entropy(logits.float(), targets[step])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if step == 0:
            result = {"logits": logits} | {"gradient." + name: p.grad.clone() for name, p in parameters.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP))
        losses.append(loss)
        scaler.step(optimizer)
        scaler.update()
    assert torch.stack(norms).isfinite().all()
    result |= {"losses": torch.stack(losses), "gradient_norms": torch.stack(norms)}
    return result | {"final." + name: p for name, p in parameters.items()}


def rounding_bound(final, exact, rounded):
    """Returns the distance that float32 may move each element, to first order. Gradients err by `delta`,
    PyTorch's largest error.

    Then m and sqrt(v) err by at most delta each, and |m| <= sqrt(v). So m / (sqrt(v) + eps) errs by at
    most 2 delta / (sqrt(v) + eps), and never by more than 2. It has no error if every gradient was zero.
    The parameter itself is rounded twice per step."""
    delta = max((gradient - other).abs().max() for (gradient, _), (other, _) in zip(exact, rounded))
    updates = sum(torch.where(root > 0, (2 * delta / (root + 1e-8)).clamp(max=2.0), 0.0) for _, root in exact)
    return LEARNING_RATE * updates + STEPS * torch.finfo(torch.float32).eps * final.abs()


def model_facts(shape):
    model = make_model(shape)
    inputs = torch.randint(shape.vocab_size, (STEPS, BATCH, shape.block_size))
    targets = torch.randint(shape.vocab_size, inputs.shape)
    targets[torch.rand(targets.shape) < 0.15] = -1
    facts = {"initial." + name: p for name, p in model.named_parameters()}
    facts |= {"inputs": inputs.int(), "targets": targets.int()}
    exact, exact_steps = train(model, torch.float64, inputs, targets)
    rounded, rounded_steps = train(model, torch.float32, inputs, targets)
    compare(facts, exact, rounded)
    for name, _ in model.named_parameters():
        final = exact["final." + name]
        bound = rounding_bound(final, [s[name] for s in exact_steps], [s[name] for s in rounded_steps])
        assert ((rounded["final." + name] - final).abs() <= bound).all(), name
        facts[f"final.{name}.bound"] = bound.float()
    mixed = {}
    for short, dtype in {"bf16": torch.bfloat16, "f16": torch.float16}.items():
        rounded = train_in_16_bits(model, dtype, inputs, targets)
        for name, value in rounded.items():
            deviation = (value.double() - exact[name]).abs()
            mixed[f"{short}.{name}.error"] = torch.stack([deviation.max(), deviation.mean()])
    return facts, mixed


def differentiate(name, dtype, forward, inputs, dy):
    """Returns the output and the gradients of one operation. `dy` is the gradient of the output."""
    leaves = {key: value.to(dtype, copy=True).requires_grad_() for key, value in inputs.items()}
    y = forward(*leaves.values())
    y.backward(dy.to(dtype))
    return {f"{name}.y": y} | {f"{name}.d{key}": leaf.grad for key, leaf in leaves.items()}


def attention(qkv, heads=3):
    batch, time, width = qkv.shape
    q, k, v = qkv.view(batch, time, 3, heads, width // (3 * heads)).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, width // 3)


def grouped_attention(q, k, v, size=5):
    q, k, v = (x.unflatten(-1, (-1, size)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


def optimize(name, dtype, make, start, gradients):
    parameter = start.to(dtype, copy=True).requires_grad_()
    optimizer = make([parameter])
    for gradient in gradients:
        parameter.grad = gradient.to(dtype)
        optimizer.step()
    moments = {f"{name}.{key}": value for key, value in optimizer.state[parameter].items() if key != "step"}
    return {f"{name}.final": parameter} | moments


def add_operation(facts, name, forward, inputs, dy):
    facts.update({f"{name}.{key}": value for key, value in inputs.items()} | {f"{name}.dy": dy})
    compare(facts, *(differentiate(name, dtype, forward, inputs, dy) for dtype in PRECISIONS))


def op_facts():
    facts = {}

    def add(name, forward, inputs, dy):
        add_operation(facts, name, forward, inputs, dy)

    def add_optimizer(name, make):
        start, gradients = torch.randn(6, 7), torch.randn(5, 6, 7) * torch.logspace(-6, 0, 7)
        facts.update({f"{name}.initial": start, f"{name}.gradients": gradients})
        compare(facts, *(optimize(name, dtype, make, start, gradients) for dtype in PRECISIONS))

    for name, offset in {"layer_norm": 0.0, "layer_norm_offset": 100.0}.items():
        inputs = {"x": offset + torch.randn(5, 19), "weight": torch.randn(19), "bias": torch.randn(19)}
        add(name, lambda x, w, b: F.layer_norm(x, (19,), w, b, eps=1e-5), inputs, torch.randn(5, 19))
    ramp = torch.linspace(-6, 6, 97)
    add("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), {"x": ramp}, torch.randn(97))
    add("gelu_erf", F.gelu, {"x": ramp}, torch.randn(97))
    add("attention", attention, {"qkv": torch.randn(2, 9, 45)}, torch.randn(2, 9, 15))

    targets = torch.tensor([3, -1, 0, 10, 7, -1, 10])
    logits = torch.randn(7, 11) * torch.tensor([1, 1, 30, 1, 5, 1, 100.0])[:, None]
    facts["cross_entropy.targets"] = targets.int()
    add("cross_entropy", lambda x: F.cross_entropy(x, targets, ignore_index=-1), {"x": logits}, torch.tensor(1.0))

    add_optimizer("adamw", lambda p: torch.optim.AdamW(p, lr=0.02, betas=BETAS, weight_decay=0.1, foreach=False))
    add_optimizer("sgd", lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.1, foreach=False))
    return facts


def tensor_facts():
    """Returns facts about operations of users' own models: broadcasting, dimensions, and numbers that are not finite."""
    generator = torch.Generator().manual_seed(20240301)
    operations = {  # name -> function, shapes of inputs
        "add": (torch.add, (3, 1, 4), (2, 1)),
        "subtract": (torch.sub, (4,), (3, 2, 4)),
        "multiply": (torch.mul, (2, 1, 3, 1), (4, 1, 2)),
        "divide": (torch.div, (3, 1, 4), (2, 1)),
        "exp": (torch.exp, (7,)),
        "log": (torch.log, (7,)),
        "sum_middle": (lambda x: x.sum(1), (2, 5, 3)),
        "mean_kept": (lambda x: x.mean(-2, keepdim=True), (2, 5, 3)),
        "mean_last": (lambda x: x.mean(-1), (2, 5, 3)),
        "softmax_first": (lambda x: x.softmax(0), (5, 3)),
        "softmax_last": (lambda x: x.softmax(-1), (3, 5)),
        "transpose": (lambda x: x.transpose(1, -1), (2, 3, 2, 4)),
        "matmul_one_matrix": (torch.matmul, (2, 3, 4), (4, 5)),
        "matmul_broadcast": (torch.matmul, (2, 1, 3, 4), (3, 4, 2)),
    }
    facts = {}
    for name, (forward, *shapes) in operations.items():
        inputs = {key: 0.5 + torch.rand(shape, generator=generator) for key, shape in zip("xy", shapes)}
        dy = torch.randn(forward(*inputs.values()).shape, generator=generator)
        add_operation(facts, name, forward, {f"in_{key}": value for key, value in inputs.items()}, dy)
    attended = {f"in_{key}": torch.randn(2, 9, width, generator=generator) for key, width in zip("xyz", (30, 10, 10))}
    dy = torch.randn(2, 9, 30, generator=generator)
    add_operation(facts, "grouped_attention", grouped_attention, attended, dy)
    inf, nan = torch.inf, torch.nan
    edges = {
        "divide": (torch.div, [1.0, -1.0, 0.0, inf, 2.0], [0.0, 0.0, 0.0, inf, -inf]),
        "exp": (torch.exp, [-inf, inf, nan, 0.0]),
        "log": (torch.log, [0.0, -1.0, inf, nan, 1.0]),
        "softmax": (lambda x: x.softmax(-1), [[0.0, -inf, 0.0], [-inf, -inf, -inf], [0.0, nan, 1.0], [inf, 0.0, 1.0]]),
        "mean_of_nothing": (lambda x: x.mean(1), [[], []]),
        "sum_of_nothing": (lambda x: x.sum(1), [[], []]),
    }
    for name, (forward, *values) in edges.items():
        inputs = {f"in_{key}": torch.tensor(value) for key, value in zip("xy", values)}
        y = forward(*inputs.values())
        facts |= {f"edge.{name}.{key}": value for key, value in inputs.items()}
        facts |= {f"edge.{key}": value for key, value in differentiate(
            name, torch.float64, forward, inputs, torch.ones_like(y)).items()}
    return facts


def scaler_facts():
    """Returns the scales of torch.amp.GradScaler over steps of which some have an infinite gradient."""
    generator = torch.Generator().manual_seed(20240302)

    def some(count, share):
        return torch.rand(count, generator=generator) < share

    default = some(2030, 0.0)  # falls, grows after 2000 steps in a row, and starts to count again
    default[[0, 1, 2, 2004, 2005]] = True
    runs = {  # name -> initial scale, growth factor, backoff factor, growth interval, steps with an infinity
        "default": (65536.0, 2.0, 0.5, 2000, default),
        "interval_3": (65536.0, 2.0, 0.5, 3, some(60, 0.3)),
        "interval_1": (1.0, 2.0, 0.5, 1, some(40, 0.4)),
        "other_factors": (1000.0, 1.7, 0.3, 2, some(60, 0.25)),
        "no_larger_than_fp32": (2.0**124, 2.0, 0.5, 1, some(12, 0.0)),
        "subnormal": (2.0**-124, 2.0, 0.5, 4, some(32, 0.9)),
    }
    facts = {}
    for name, (*options, found_inf) in runs.items():
        initial, growth, backoff, interval = options
        scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_factor=growth, backoff_factor=backoff,
                                      growth_interval=interval)
        parameter = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=0.0)
        scales, trackers = [], []
        for is_infinite in found_inf:
            scaler.scale(torch.ones(()))
            parameter.grad = torch.tensor([torch.inf if is_infinite else 0.0])
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler._scale.item())
            trackers.append(scaler._growth_tracker.item())
        facts |= {
            f"{name}.options": torch.tensor(options, dtype=torch.float64),
            f"{name}.found_inf": found_inf.int(),
            f"{name}.scale": torch.tensor(scales, dtype=torch.float32),
            f"{name}.growth_tracker": torch.tensor(trackers, dtype=torch.int32),
        }
    return facts


def packed(examples, block):
    """Returns blocks of inputs and targets. Examples fill a block in order while they fit, and -1 marks
    ignored targets."""
    blocks, used = [], block
    for prompt, answer in examples:
        ids = prompt + answer
        assert len(ids) - 1 <= block
        if used + len(ids) - 1 > block:
            blocks.append(([0] * block, [-1] * block))
            used = 0
        inputs, targets = blocks[-1]
        for i, token in enumerate(ids):
            if used + i < block:
                inputs[used + i] = token
            if i >= max(len(prompt), 1):
                targets[used + i - 1] = token
        used = min(block, used + len(ids))
    return blocks


FROZEN = ("transformer.wpe.*", "*.h.0.attn.*", "*.ln_f.bias")
GROUPS = (("*.h.1.*", 0.5, 0.02), ("*.bias", 2.0, None))  # pattern, factor of the learning rate, weight decay


def tune(initial, dtype, inputs, targets):
    """Runs ten steps with frozen parameters and groups. The rate rises over two steps and falls over the
    last three."""
    model = copy.deepcopy(initial).to(dtype)
    groups = []
    for name, parameter in model.named_parameters():
        if any(fnmatch(name, pattern) for pattern in FROZEN):
            parameter.requires_grad = False
            continue
        factor, decay = next(((f, d) for pattern, f, d in GROUPS if fnmatch(name, pattern)), (1.0, None))
        usual = WEIGHT_DECAY if parameter.dim() >= 2 else 0.0
        groups.append({"params": [parameter], "weight_decay": usual if decay is None else decay, "factor": factor})
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=1e-8, foreach=False)
    losses = []
    for step in range(STEPS):
        rate = LEARNING_RATE * min(1.0, (step + 1) / 3)
        if step > 7:
            rate = 1e-4 + (LEARNING_RATE - 1e-4) * (10 - step) / 3
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(model(inputs[step]), targets[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], CLIP)
        losses.append(loss.detach())
        optimizer.step()
    return {"losses": torch.stack(losses)}


def fine_tuning_facts(shape):
    """Returns examples of characters from "0" on, packed into twenty blocks, and one more block for
    validation."""
    generator = torch.Generator().manual_seed(7)
    draw = lambda low, high, *size: torch.randint(low, high, size, generator=generator)
    examples, ids = [], lambda count: draw(0, shape.vocab_size, count).tolist()
    examples.append((list(range(7)), list(range(7, 13))))
    examples.append((list(range(13, 20)), list(range(20, 26))))
    examples.append((list(range(26, 31)), list(range(31, 37))))
    while True:
        longer = examples + [(ids(int(draw(0, 5, 1))), ids(int(draw(2, 8, 1))))]
        if len(packed(longer, shape.block_size)) > 2 * STEPS:
            break
        examples = longer
    inputs, targets = (torch.tensor(part).view(STEPS, 2, -1) for part in zip(*packed(examples, shape.block_size)))
    text = lambda part: "".join(chr(48 + token) for token in part)
    lines = [json.dumps({"prompt": text(p), "answer": text(a)}) for p, a in examples + [([1, 2], [3, 4])]]
    facts = {"jsonl": torch.tensor(list("\n".join(lines).encode()), dtype=torch.int32)}
    model = make_model(shape)
    facts |= {"initial." + name: p for name, p in model.named_parameters()}
    facts |= {"inputs": inputs.int(), "targets": targets.int(), "examples": torch.tensor([len(lines)]).int()}
    compare(facts, *(tune(model, dtype, inputs, targets) for dtype in PRECISIONS))
    return facts


def main():
    torch.set_num_threads(1)
    torch.manual_seed(20240229)
    metadata = {"made_by": "tests/golden/make_golden.py", "torch": torch.__version__}
    for name, shape in MODELS.items():
        facts, mixed = model_facts(shape)
        save_safetensors(FOLDER / f"{name}.safetensors", facts, metadata | {"shape": str(shape)})
        save_safetensors(FOLDER / f"{name}_16_bits.safetensors", mixed, metadata)
    save_safetensors(FOLDER / "ops.safetensors", op_facts(), metadata)
    save_safetensors(FOLDER / "tensor_ops.safetensors", tensor_facts(), metadata)
    save_safetensors(FOLDER / "grad_scaler.safetensors", scaler_facts(), metadata)
    save_safetensors(FOLDER / "fine_tuning.safetensors", fine_tuning_facts(Shape(37, 13, 2, 3, 24)), metadata)


if __name__ == "__main__":
    main()
