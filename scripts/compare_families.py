#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ids of bin/tokenize with those of Hugging Face's tokenizers, over random texts of hard characters.

    python3 scripts/compare_families.py [FOLDER...] [--programs build/cpu/bin] [--texts 20000] [--seed 1]

A folder has a tokenizer.json, such as those of Llama 3, Qwen 3 and SmolLM2. The default are the small ones of
tests/golden/families, which have the same steps. The texts are made of what tokenizers differ in, such as accents
in any order, digits of many scripts, line ends and the tokenizer's own added tokens."""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizers

ROOT = pathlib.Path(__file__).parent.parent
BITS = ["'S", "'re", "'LL", "12345", "\u0661\u0662", "1", "\u00b2", "\u00bd", "\r\n", "\n\n", "\n", " ", "  ", "\t", "\u00a0", "\u3000",
        "e\u0301", "\u0301", "\u0327", "\u1100\u1161\u11a8", "\u1100", "\u1161", "\ud55c\uae00", "\u4f60\u597d", "\uff0c", "a", "Word",
        "\U0001F468\u200d\U0001F469", "XML", "!", "...", "=\u0338", ">\u0338", "\u0958!", "\u212b", "\u0344", "\uf900", "\U0002f800",
        "\u1fef", "\u0390", "\u09c7\u09be", "\u0cc6\u0cc2\u0cd5", "\U00011de0", "\U00016ff5", "\u0378", "\u017f", "'\u017f", "\u0345",
        "\u1abf", "\U00011935\U00011930", "\u00c9", "\u1ec7", "e\u0323\u0302", "o\u031b\u0301", " " * 40, "a" * 30]
SCALARS = [code for code in range(1, 0x110000) if not 0xD800 <= code <= 0xDFFF]


def random_text(draw, added):
    parts = []
    for _ in range(draw.randint(1, 30)):
        kind = draw.random()
        parts.append(draw.choice(added) if added and kind < 0.05 else draw.choice(BITS) if kind < 0.85
                     else chr(draw.choice(SCALARS)) if kind < 0.95 else chr(draw.randrange(0x20, 0x7F)))
    return "".join(parts)


def differences(programs, folder, texts, seed):
    """Returns how many texts have other ids, and shows the first of them."""
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    draw = random.Random(seed)
    count = 0
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "text"
        for _ in range(0, texts, 1000):
            part = [random_text(draw, added) for _ in range(1000)]
            whole = "\n".join(part)
            if ids_of(programs, folder, path, whole) == reference.encode(whole, add_special_tokens=False).ids:
                continue
            for text in part:
                ours, theirs = ids_of(programs, folder, path, text), reference.encode(text, add_special_tokens=False).ids
                if ours != theirs and count == 0:
                    print(ascii(text), ours, theirs, sep="\n")
                count += ours != theirs
    return count


def ids_of(programs, folder, path, text):
    path.write_bytes(text.encode())
    command = [programs / "tokenize", "--tokenizer", folder / "tokenizer.json", "--ids-of-file", path]
    return list(map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=pathlib.Path, default=sorted((ROOT / "tests/golden/families").glob("*/")))
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/cpu/bin")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failures = 0
    for folder in options.folders:
        found = differences(options.programs, folder, options.texts, options.seed)
        print(f"{folder.name}: {options.texts} texts, {found} with other ids than tokenizers {tokenizers.__version__}", flush=True)
        failures += found
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
