#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Lockstep with the installed transformers and PyTorch, on new random models of each family. Runs the checks
of build/cpu/bin/huggingface_tests (logits, ten steps, every bit) on them instead of on tests/golden/huggingface. Also loads
the folders that `convert` and a run write into transformers, and compares the loss that `evaluate` prints.

    python3 scripts/compare_transformers.py [--programs build/cpu/bin] [--seed 1]

Needs the Python packages torch, transformers, tokenizers and safetensors. Exits with code 1 at the first difference.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "golden"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: E402

from make_huggingface import LLAMAS, MODELS, make_folders  # noqa: E402

TEXT = "".join(f"{number} and {number * number % 97} are numbers; " for number in range(400))
BLOCK = 12


def check(is_right, what):
    print(f"{'ok  ' if is_right else 'FAIL'} {what}")
    if not is_right:
        sys.exit(1)


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    lacking = {kind: names for kind, names in info.items() if names}
    # Attention masks of old versions are the only names that may be unexpected.
    unexpected = [name for name in lacking.pop("unexpected_keys", ()) if ".attn." not in name]
    check(not lacking and not unexpected, f"transformers loads all of {folder} {lacking or ''} {unexpected or ''}")
    return model.eval()


def same_bits(model, other):
    theirs = dict(other.named_parameters())
    mine = dict(model.named_parameters())
    return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in mine.items())


def validation_loss(model, tokenizer):
    """Returns the mean loss over adjacent windows of the last tenth of the text, as Lockstep's validation does."""
    ids = tokenizer(TEXT, return_tensors="pt").input_ids[0]
    ids = ids[int(0.9 * len(ids)) :]
    windows = (len(ids) - 1) // BLOCK
    inputs, targets = ids[: windows * BLOCK].view(-1, BLOCK), ids[1 : windows * BLOCK + 1].view(-1, BLOCK)
    with torch.no_grad():
        logits = model.double()(inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


def text_loss(model, tokenizer):
    """Returns the mean loss over all tokens but the first of each window of the context, as evaluate does."""
    ids = tokenizer(TEXT, return_tensors="pt").input_ids[0]
    losses = []
    for window in ids.split(model.config.max_position_embeddings):
        with torch.no_grad():
            logits = model.double()(window[None]).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, window[1:], reduction="none"))
    return torch.cat(losses).mean().item()


def compare_shape(programs, folder, work):
    original = load(folder)
    run(programs / "convert", folder, work / "converted")
    check(same_bits(load(work / "converted"), original), "convert: every bit")
    run(programs / "convert", folder, work / "half", "--dtype", "bf16")
    half = load(work / "half")
    check(half.dtype == torch.bfloat16 and same_bits(half, original.to(torch.bfloat16)), "convert --dtype bf16: PyTorch's rounding")
    (work / "text.txt").write_text(TEXT)
    settings = [f"model.from={folder}", f"data.dataset={work / 'text.txt'}", "data.tokenizer=char", f"data.block_size={BLOCK}",
                "train.device=cpu", "train.eval_every=5", "train.threads=1"]
    run(programs / "train_gpt", *settings, "train.steps=1", "train.learning_rate=0", f"log.dir={work / 'still'}")
    check(same_bits(load(work / "still/snapshots/best"), load(folder)), "a snapshot of what the run began with: every bit")
    run(programs / "train_gpt", *settings, "train.steps=10", f"log.dir={work / 'tuned'}")
    tuned = load(work / "tuned/snapshots/step-00000010")
    # AutoTokenizer of transformers 5 takes Qwen2Tokenizer for a qwen2, whatever tokenizer_config.json says.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tuned/snapshots/best")
    check(tokenizer.decode(tokenizer(TEXT).input_ids) == TEXT, "the tokenizer of a snapshot gives the text back")
    lines = [json.loads(line) for line in (work / "tuned/metrics.jsonl").read_text().splitlines()]
    ours = next(line["val_loss"] for line in lines if line.get("step") == 10)
    theirs = validation_loss(tuned, tokenizer)
    check(abs(ours - theirs) < 1e-5, f"validation loss after ten steps: {ours:.6f}, by transformers {theirs:.6f}")
    score = json.loads(run(programs / "evaluate", work / "tuned/snapshots/step-00000010", work / "text.txt", "--json"))
    ours, theirs = score["loss"], text_loss(tuned, tokenizer)
    check(abs(ours - theirs) < 1e-6, f"evaluate: loss {ours:.8f}, by transformers {theirs:.8f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/cpu/bin")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    programs = arguments.programs.resolve()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as temporary:
        folders = Path(temporary) / "folders"
        make_folders(folders, arguments.seed)
        run(programs / "huggingface_tests", "--gtest_filter=Shapes/*",
            env={**os.environ, "LOCKSTEP_HUGGINGFACE_FOLDERS": str(folders)})
        check(True, "huggingface_tests: logits within 1e-4, ten losses within 1e-5, every bit, greedy texts")
        for name in [*MODELS, *LLAMAS]:
            print(f"--- {name}")
            (Path(temporary) / name).mkdir()
            compare_shape(programs, folders / name, Path(temporary) / name)


if __name__ == "__main__":
    main()
