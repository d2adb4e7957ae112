#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small tokenizers of tests/golden/tokenizers/ and writes the references' ids of texts.

expected.json has `texts` with their ids by tokenizers. For each tokenizer it has the checksums `all` and
`some`. `all` covers the ids of every Unicode scalar value, and `some` those of every 61st, in nine
contexts. The ids are tiktoken's, and both references compute those of `some`. A checksum is zlib's CRC-32
over the ids of all texts as int32. The ids of each text are followed by -1."""
import array
import base64
import json
import pathlib
import sys
import zlib

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import compare_tokenizers as compare  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "tokenizers"
QWEN2 = compare.LLAMA3.replace("{1,3}", "")
CASED = [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"]
O200K = "|".join([*CASED, r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEXTS = ["", " ", "a", "Hello world, it's 2026!", "We'LL'S don't I'VE x'\u017f 'Tis", "12345678 3.14159 \u0661\u0662\u0663\u0664",
         "  two\n\n   lines \r\n\r\n\t\ttabs  ", "tail \n \n  ", "x\u00a0\u2003 \u3000y", "...!?\n\n/path/to//\n", "\0a\x01\x7f\x85",
         "caf\u00e9 e\u0301tude \u0301\u0301", "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\U0001F468\u200d\U0001F469 \U0001F98A!",
         "camelCaseHTTPServer XMLs McDonald's ABC'd \u01c5a", "a<|endoftext|>b", "<|endoftext|><|endoftext|> c", "<|endoftext|",
         "<|tool|>x<|tool|> <|to", "a" * 300, "ab" * 200 + " " + " " * 300, "if (x != 0) {\n    return y[i] + 1;\n}\n"]


def save_gpt2():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([compare.mixed_text(1 << 19, 3)], trainers.BpeTrainer(
        vocab_size=700, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.model.save(str(FOLDER / "gpt2"))
    return made


def with_pattern(made, pattern):
    spelled = json.loads(made.to_str())
    spelled["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
    return Tokenizer.from_str(json.dumps(spelled))


def checksum(all_ids):
    flat = array.array("i")
    for ids in all_ids:
        flat.extend(ids)
        flat.append(-1)
    return zlib.crc32(flat.tobytes())


def checksums(made, encoding, every):
    sums = []
    for context in compare.CONTEXTS:
        texts = [context.format(chr(code)) for code in compare.SCALARS[::every]]
        ids = compare.tiktoken_ids(encoding, texts)
        if every > 1:
            theirs = [one.ids for one in made.encode_batch_fast(texts, add_special_tokens=False)]
            assert ids == theirs, context
        sums.append(checksum(ids))
    return sums


def main():
    (FOLDER / "gpt2").mkdir(parents=True, exist_ok=True)
    cases = {"gpt2": (save_gpt2(), compare.GPT2, ["<|endoftext|>"])}
    special = ["<|endoftext|>", "<|begin|>"]
    llama3 = compare.train(compare.LLAMA3, 900, True, special)
    llama3.add_tokens(["<|tool|>"])
    llama3.post_processor = processors.TemplateProcessing(single="<|begin|> $A <|endoftext|>",
                                                          special_tokens=[("<|endoftext|>", 0), ("<|begin|>", 1)])
    (FOLDER / "llama3.json").write_text(llama3.to_str() + "\n")
    known = [*special, "<|tool|>"]
    for name, pattern in (("llama3", compare.LLAMA3), ("qwen2", QWEN2), ("o200k", O200K)):
        cases[name] = (with_pattern(llama3, pattern), pattern, known)
    small = compare.train(compare.LLAMA3, 600, True, [])
    ranks = compare.tiktoken_of(small, compare.LLAMA3, [])._mergeable_ranks
    lines = [base64.b64encode(token) + b" %d\n" % rank for token, rank in sorted(ranks.items(), key=lambda entry: entry[1])]
    (FOLDER / "cl100k_small.tiktoken").write_bytes(b"".join(lines))
    small.add_special_tokens(["<|endoftext|>"])
    spelled = compare.LLAMA3.replace(r"|\s*[\r\n]+", r"|\s+\z|\s*[\r\n]+")
    cases["cl100k"] = (with_pattern(small, spelled), compare.CL100K_TIKTOKEN, ["<|endoftext|>"])
    expected = {"texts": TEXTS, "ids": {}, "with_special": llama3.encode("Hello").ids, "all": {}, "some": {}}
    for name, (made, pattern, added) in cases.items():
        encoding = compare.tiktoken_of(made, pattern, added)
        expected["ids"][name] = [made.encode(text, add_special_tokens=False).ids for text in TEXTS]
        assert expected["ids"][name] == [encoding.encode(text, allowed_special="all") for text in TEXTS], name
        expected["some"][name] = checksums(made, encoding, 61)
        if name in ("gpt2", "cl100k", "llama3"):
            expected["all"][name] = checksums(made, encoding, 1)
        print(name, flush=True)
    (FOLDER / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
