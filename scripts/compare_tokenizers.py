#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ids of bin/tokenize with the ids of tiktoken and of Hugging Face's tokenizers.

Checks four tokenizers. GPT-2's is read from a tiktoken file (in PyPI's openai-whisper, whisper/assets/gpt2.tiktoken). This
script trains two more, named after cl100k's and Llama 3's pattern. The fourth is cl100k with tiktoken's own pattern. Each
encodes every Unicode scalar value in nine contexts and 10 MB of mixed scripts, code, emoji and control characters.
Decoding the 10 MB must give the same text.

    python3 scripts/compare_tokenizers.py gpt2.tiktoken [--programs build/cpu/bin] [--every 1]
"""
import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import tiktoken
import tokenizers
from tiktoken.load import load_tiktoken_bpe
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).parent.parent
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K_TIKTOKEN = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
                   r"|\s*[\r\n]|\s+(?!\S)|\s")
CONTEXTS = ("{}", " {}", "a{}", "1{}", "'{}", "\n{}", "{0}{0}", "a{}b", "{} ")
SCALARS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


def mixed_text(size, seed):
    """Returns words of many scripts, code, numbers, emoji and controls, joined by all kinds of white space."""
    draw = random.Random(seed)
    scripts = [(0x61, 0x7A)] * 12 + [(0x41, 0x5A), (0xC0, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA),
               (0x620, 0x64A), (0x905, 0x939), (0xE01, 0xE2E), (0x3041, 0x3096), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3),
               (0x1F300, 0x1F64F), (0x300, 0x36F), (0x30, 0x39), (0x660, 0x669), (0x2150, 0x2189), (0x21, 0x2F),
               (0x01, 0x1F), (0x10400, 0x1044F), (0x20000, 0x20100)]
    spaces = [" "] * 20 + ["\n", "\n\n", "  ", "\t", "\r\n", "   ", "\n    ", "\u00a0", "\u2003", "\u3000", "", "", "\x85"]
    code = ["if (x != 0) {\n    return y[i] + 1;\n}\n", "don't", "We'LL", "it's", "'Tis", "I\u2019m", "x'\u017f", "12345678",
            "3.14159", "https://example.org/a?b=c&d=e", "/* ... */", "</div>\r\n\r\n", "#include <vector>", "----", "...!?\n\n",
            "e\u0301", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\u200b", "  \n  ", "// TODO: fix\n", "__init__"]
    words = [(ROOT / name).read_text().split(" ") for name in ("README.md", "src/core/thread_pool.h", "scripts/chaos.sh")]
    parts, length = [], 0
    while length < size:
        kind = draw.random()
        if kind < 0.4:
            source = draw.choice(words)
            start = draw.randrange(len(source))
            part = " ".join(source[start:start + 8])
        elif kind < 0.55:
            part = draw.choice(code)
        else:
            low, high = draw.choice(scripts)
            part = "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 9)))
        part += draw.choice(spaces)
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


def byte_alphabet():
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{chr(byte): byte for byte in shown}, **{chr(0x100 + i): byte for i, byte in enumerate(hidden)}}


ALPHABET = byte_alphabet()


def train(pattern, size, ignore_merges, special):
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.train_from_iterator([mixed_text(1 << 20, 1)], trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def tiktoken_of(made, pattern, special):
    ranks = {bytes(ALPHABET[c] for c in token): rank for token, rank in made.get_vocab().items() if token not in special}
    return tiktoken.Encoding("trained", pat_str=pattern, mergeable_ranks=ranks,
                             special_tokens={token: made.token_to_id(token) for token in special})


def gpt2_of_tokenizers(path):
    """Returns both libraries' tokenizers of the file. Every split of a token into two others is a merge, in rank order."""
    ranks = load_tiktoken_bpe(str(path))
    spell = {byte: character for character, byte in ALPHABET.items()}
    vocabulary = {"".join(spell[b] for b in token): rank for token, rank in ranks.items()}
    merges = []
    for token, rank in ranks.items():
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [("".join(spell[b] for b in x), "".join(spell[b] for b in y))
                   for x, y in sorted(cuts, key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))]
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    encoding = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    return made, encoding


def tiktoken_ids(encoding, texts):
    """Returns the ids of each text. One call encodes all texts, because texts between special tokens are independent."""
    end = 1 << 30
    parted = tiktoken.Encoding("parted", pat_str=encoding._pat_str, mergeable_ranks=encoding._mergeable_ranks,
                               special_tokens={"<|end of one|>": end})
    flat = parted.encode("".join(text + "<|end of one|>" for text in texts), allowed_special="all")
    ids, one = [], []
    for number in flat:
        if number == end:
            ids.append(one)
            one = []
        else:
            one.append(number)
    return ids


class Check:
    def __init__(self, programs, folder):
        self.program, self.folder, self.failures = programs / "tokenize", folder, 0

    def run(self, tokenizer, *arguments, **options):
        return subprocess.run([self.program, "--tokenizer", tokenizer, *arguments], check=True, capture_output=True, **options).stdout

    def ids_of(self, tokenizer, texts):
        path = self.folder / "texts"
        path.write_bytes(b"".join(text.encode() + b"\0" for text in texts))
        lines = self.run(tokenizer, "--ids-of-texts", path).split(b"\n")
        return [list(map(int, line.split())) for line in lines[:-1]]

    def ids_of_file(self, tokenizer, text):
        path = self.folder / "text"
        path.write_bytes(text.encode())
        return list(map(int, self.run(tokenizer, "--ids-of-file", path).split()))

    def compare(self, what, ours, others, texts):
        if ours == others:
            return
        for mine, other, text in zip(ours, others, texts):
            if mine != other:
                self.failures += 1
                if self.failures < 20:
                    print(f"DIFFERENT from {what}: {text!r}: {mine} instead of {other}")

    def contexts(self, name, path, made, encoding, every):
        count = 0
        for context in CONTEXTS:
            texts = [context.format(chr(code)) for code in SCALARS[1::every]]
            ours = self.ids_of(path, texts)
            assert len(ours) == len(texts)
            self.compare("tiktoken", ours, tiktoken_ids(encoding, texts), texts)
            for begin in range(0, len(texts), 1 << 17):
                part = texts[begin:begin + (1 << 17)]
                theirs = [one.ids for one in made.encode_batch_fast(part, add_special_tokens=False)]
                self.compare("tokenizers", ours[begin:begin + (1 << 17)], theirs, part)
            null = context.format("\0")
            ids = self.ids_of_file(path, null)
            self.compare("both", [ids, ids], [encoding.encode_ordinary(null), made.encode(null, add_special_tokens=False).ids],
                         [null, null])
            count += len(texts) + 1
        print(f"{name}: {count} texts of one character in nine contexts, {self.failures} differences", flush=True)

    def long_text(self, name, path, made, encoding, text):
        ours = self.ids_of_file(path, text)
        start = time.perf_counter()
        theirs = encoding.encode_ordinary(text)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        other = made.encode(text, add_special_tokens=False).ids
        other_seconds = time.perf_counter() - start
        self.failures += (ours != theirs) + (ours != other)
        decoded = self.run(path, "--decode", "-", input=" ".join(map(str, ours)).encode())
        self.failures += decoded != text.encode()
        size = len(text.encode())
        print(f"{name}: {size} bytes, {len(ours)} ids, equal to tiktoken: {ours == theirs}, to tokenizers: {ours == other}, "
              f"decoded: {decoded == text.encode()}; tiktoken {size / seconds / 1e6:.1f} MB/s, "
              f"tokenizers {size / other_seconds / 1e6:.1f} MB/s", flush=True)

    def speed(self, programs, path, text):
        (self.folder / "text").write_bytes(text.encode())
        print(subprocess.run([programs / "bench_tokenizer", "--tokenizer", path, "--text", self.folder / "text", "--seconds",
                              "2"], check=True, capture_output=True, text=True).stdout, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpt2", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/cpu/bin")
    parser.add_argument("--every", type=int, default=1, help="check only every n-th character in the contexts")
    options = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check = Check(options.programs, folder)
        made, encoding = gpt2_of_tokenizers(options.gpt2)
        cases = [("GPT-2", options.gpt2, made, encoding)]
        for title, pattern, size, ignore in (("cl100k's pattern", LLAMA3, 3000, False), ("Llama 3's pattern", LLAMA3, 8000, True)):
            special = ["<|endoftext|>"]
            made = train(pattern, size, ignore, special)
            path = folder / f"{size}.json"
            made.save(str(path))
            cases.append((title, path, made, tiktoken_of(made, pattern, special)))
        # cl100k with tiktoken's own pattern, because a tiktoken file contains no pattern.
        ranks = cases[1][3]._mergeable_ranks
        path = folder / "cl100k_trained.tiktoken"
        path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in sorted(ranks.items(), key=lambda x: x[1])))
        special = {"<|endoftext|>": max(ranks.values()) + 1}
        encoding = tiktoken.Encoding("cl100k", pat_str=CL100K_TIKTOKEN, mergeable_ranks=ranks, special_tokens=special)
        rust = json.loads(cases[1][2].to_str())
        rust["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA3.replace(r"|\s*[\r\n]+", r"|\s+\z|\s*[\r\n]+")
        cases.append(("cl100k as tiktoken spells it", path, Tokenizer.from_str(json.dumps(rust)), encoding))
        text = mixed_text(10_000_000, 2)
        for case in cases:
            if (options.programs / "bench_tokenizer").exists():
                check.speed(options.programs, case[1], text)
            check.long_text(*case, text)
            check.long_text(*case, "tail\n \n  ")
            check.contexts(*case, options.every)
    print("equal" if check.failures == 0 else f"{check.failures} differences")
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
