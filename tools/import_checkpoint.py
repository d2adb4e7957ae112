#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a checkpoint of nanoGPT, minGPT or llm.c to a Hugging Face GPT-2 folder, for model.from and transformers.

    tools/import_checkpoint.py ckpt.pt folder                       nanoGPT: a checkpoint of train.py
    tools/import_checkpoint.py model.pt folder --n-head 6           minGPT: a state_dict, without the number of heads
    tools/import_checkpoint.py gpt2_124M.bin folder                 llm.c: versions 3 (fp32) and 5 (bf16)

Linear weights are [out, in] in these checkpoints and [in, out] in a GPT-2 folder. Biases that a model lacks become zeros.
--vocab-size removes the padding rows of the vocabulary. These checkpoints contain no tokenizer: copy the model's
tokenizer.json into the folder. Needs the Python packages torch and safetensors.
"""

import argparse
import json
import pickle
import re
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

LINEAR = re.compile(r"\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight$")
BUFFER = re.compile(r"\.attn\.(bias|masked_bias)$")
LLMC_MAGIC = 20240326
HEADER_BYTES = 1024
LLMC_DTYPES = {3: torch.float32, 5: torch.bfloat16}


def fail(message):
    print(f"import_checkpoint: {message}", file=sys.stderr)
    sys.exit(2)


def from_state_dict(state, heads, activation, tied, dropout):
    """Returns GPT-2's tensors and settings. The names are GPT-2's after torch.compile's prefix. Attention masks are not
    parameters."""
    tensors = {}
    for name, tensor in state.items():
        name = name.removeprefix("_orig_mod.")
        if not BUFFER.search(name):
            tensors[name] = tensor.t() if LINEAR.search(name) else tensor
    if "transformer.wte.weight" not in tensors:
        fail("transformer.wte.weight is missing: the checkpoint is not a GPT of nanoGPT or minGPT")
    if tied:
        tensors.pop("lm_head.weight", None)
    return tensors, {"n_head": heads, "activation_function": activation, "tie_word_embeddings": tied,
                     "dropout": dropout}


def read_torch(path, heads):
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, KeyError, RuntimeError, ValueError, EOFError) as failure:
        fail(f"{path} is neither an llm.c file nor a torch.save file: {str(failure).splitlines()[0]}")
    if not isinstance(checkpoint, dict):
        fail(f"{path} contains a {type(checkpoint).__name__}, not a dictionary of tensors")
    if "model_args" in checkpoint:  # nanoGPT has the exact GELU and ties the head to the embedding
        arguments = checkpoint["model_args"]
        return from_state_dict(checkpoint["model"], arguments["n_head"], "gelu", True, arguments.get("dropout", 0.0))
    if heads is None:
        fail(f"{path} is a state_dict, which does not contain the number of heads: add --n-head")
    return from_state_dict(checkpoint, heads, "gelu_new", False, 0.0)


def read_llmc(path):
    content = bytearray(path.read_bytes())
    if len(content) < HEADER_BYTES:
        fail(f"{path} has {len(content)} bytes; the header alone has {HEADER_BYTES}")
    header = torch.frombuffer(content, dtype=torch.int32, count=HEADER_BYTES // 4).tolist()
    version, length, vocabulary, layers, heads, width, padded = header[1:8]
    if version not in LLMC_DTYPES:
        fail(f"{path} has version {version}; supported are 3 (fp32) and 5 (bf16), which train_gpt2.py writes")
    shapes = {"transformer.wte.weight": (1, padded, width), "transformer.wpe.weight": (1, length, width)}
    for name, shape in {"ln_1.weight": (width,), "ln_1.bias": (width,), "attn.c_attn.weight": (3 * width, width),
                        "attn.c_attn.bias": (3 * width,), "attn.c_proj.weight": (width, width),
                        "attn.c_proj.bias": (width,), "ln_2.weight": (width,), "ln_2.bias": (width,),
                        "mlp.c_fc.weight": (4 * width, width), "mlp.c_fc.bias": (4 * width,),
                        "mlp.c_proj.weight": (width, 4 * width), "mlp.c_proj.bias": (width,)}.items():
        shapes[name] = (layers, *shape)
    shapes["transformer.ln_f.weight"] = shapes["transformer.ln_f.bias"] = (1, width)
    dtype = LLMC_DTYPES[version]
    count = sum(torch.Size(shape).numel() for shape in shapes.values())
    expected = HEADER_BYTES + count * dtype.itemsize
    if len(content) != expected:
        fail(f"{path} has {len(content)} bytes; a model of these sizes has {expected}")
    values = torch.frombuffer(content, dtype=dtype, offset=HEADER_BYTES)
    state, begin = {}, 0
    for name, shape in shapes.items():
        size = torch.Size(shape).numel()
        parts = values[begin : begin + size].view(shape)
        begin += size
        if name.startswith("transformer."):
            state[name] = parts[0]
        else:
            state.update({f"transformer.h.{layer}.{name}": parts[layer] for layer in range(layers)})
    state["transformer.wte.weight"] = state["transformer.wte.weight"][:vocabulary]
    return from_state_dict(state, heads, "gelu_new", True, 0.0)


def complete(tensors, layers):
    """Adds missing biases as zeros, because GPT-2 in transformers has all biases."""
    width = tensors["transformer.wte.weight"].shape[1]
    norms = [f"transformer.h.{layer}.ln_{norm}" for layer in range(layers) for norm in (1, 2)] + ["transformer.ln_f"]
    sizes = {f"{norm}.bias": width for norm in norms}
    for layer in range(layers):
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            key = f"transformer.h.{layer}.{name}"
            sizes[f"{key}.bias"] = tensors[f"{key}.weight"].shape[1]
    for name, size in sizes.items():
        tensors.setdefault(name, torch.zeros(size, dtype=tensors["transformer.wte.weight"].dtype))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n-head", type=int, help="heads per block, if the checkpoint does not contain the number")
    parser.add_argument("--vocab-size", type=int, help="rows of the vocabulary to keep (default all)")
    arguments = parser.parse_args()
    if arguments.folder.exists():
        fail(f"{arguments.folder} exists already: remove it or name another folder")
    try:
        with arguments.checkpoint.open("rb") as file:
            is_llmc = int.from_bytes(file.read(4), "little") == LLMC_MAGIC
    except OSError as failure:
        fail(failure)
    tensors, described = read_llmc(arguments.checkpoint) if is_llmc else read_torch(
        arguments.checkpoint, arguments.n_head)

    for name in ("transformer.wte.weight", "lm_head.weight"):
        if arguments.vocab_size and name in tensors:
            if arguments.vocab_size > tensors[name].shape[0]:
                fail(f"--vocab-size {arguments.vocab_size}, but {name} has {tensors[name].shape[0]} rows")
            tensors[name] = tensors[name][: arguments.vocab_size]
    layers = 1 + max(int(match[1]) for name in tensors if (match := re.match(r"transformer\.h\.(\d+)\.", name)))
    complete(tensors, layers)
    vocabulary, width = tensors["transformer.wte.weight"].shape
    dropout = described.pop("dropout")
    positions = tensors["transformer.wpe.weight"].shape[0]
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocabulary, "n_embd": width,
              "n_layer": layers, "n_positions": positions, "n_ctx": positions, "layer_norm_epsilon": 1e-5,
              "attn_pdrop": dropout, "embd_pdrop": dropout, "resid_pdrop": dropout, "bos_token_id": None,
              "eos_token_id": None, **described,
              "torch_dtype": str(tensors["transformer.wte.weight"].dtype).removeprefix("torch.")}

    arguments.folder.mkdir(parents=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
              arguments.folder / "model.safetensors", metadata={"format": "pt"})
    (arguments.folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{arguments.folder}: {layers} layers, {config['n_head']} heads, {width} wide, {vocabulary} tokens")


if __name__ == "__main__":
    main()
