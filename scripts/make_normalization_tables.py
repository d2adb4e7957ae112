#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/unicode/normalization_tables.cpp: how characters decompose and compose, according to tokenizers.

Asks tokenizers how it normalizes every Unicode scalar value, and whether it knows the combining class that Python has for
it. Writes nothing unless a normalization with these tables gives random texts the same form.

    python3 scripts/make_normalization_tables.py      # needs tokenizers
"""
import itertools
import pathlib
import random
import unicodedata

import tokenizers
from tokenizers.normalizers import NFC, NFD

SCALARS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
HANGUL = range(0xAC00, 0xAC00 + 11172)
compose, decompose = NFC().normalize_str, NFD().normalize_str


def combining_classes():
    """Returns the class of each character that has one and that the reference moves as Python does."""
    classes = {}
    for code in SCALARS:
        texts = [f"a\u0345{chr(code)}", f"a{chr(code)}\u0334"]
        known = all(decompose(text) == unicodedata.normalize("NFD", text) for text in texts)
        assert known or len(decompose(chr(code))) > 1 or all(decompose(text) == text for text in texts), hex(code)
        if known and unicodedata.combining(chr(code)) and decompose(chr(code)) == chr(code):
            classes[code] = unicodedata.combining(chr(code))
    return classes


def decompositions():
    """Returns (character, first, last or 0, whether both compose) for each character that decomposes."""
    whole = {code: decompose(chr(code)) for code in SCALARS if code not in HANGUL and decompose(chr(code)) != chr(code)}
    # Characters that compose come last, so that they stand for their text.
    of_text = {whole[code]: code for code in sorted(whole, key=lambda code: compose(chr(code)) == chr(code))}
    entries = []
    for code, text in whole.items():
        if len(text) == 1:
            entries.append((code, ord(text), 0, False))
            continue
        first = text[:-1] if len(text) == 2 else chr(of_text[text[:-1]])
        composes = compose(text) == chr(code)
        entries.append((code, ord(first), ord(text[-1]), composes))
    return entries


def normalizer(classes, entries):
    """Returns a function to NFC by the tables, as src/unicode/normalization.cpp computes it."""
    parts = {code: (first, last) for code, first, last, _ in entries}
    pairs = {(first, last): code for code, first, last, composes in entries if composes}

    def expanded(code):
        if code in HANGUL:
            at = code - 0xAC00
            return [0x1100 + at // 588, 0x1161 + at % 588 // 28] + ([0x11A7 + at % 28] if at % 28 else [])
        if code not in parts:
            return [code]
        first, last = parts[code]
        return expanded(first) + ([last] if last else [])

    def composite(one, two):
        if 0x1100 <= one < 0x1113 and 0x1161 <= two < 0x1176:
            return 0xAC00 + ((one - 0x1100) * 21 + two - 0x1161) * 28
        if one in HANGUL and (one - 0xAC00) % 28 == 0 and 0x11A7 < two < 0x11C3:
            return one + two - 0x11A7
        return pairs.get((one, two))

    def normalized(text):
        marked = [(code, classes.get(code, 0)) for character in text for code in expanded(ord(character))]
        ordered = []
        for is_mark, run in itertools.groupby(marked, key=lambda entry: entry[1] > 0):
            ordered += sorted(run, key=lambda entry: entry[1]) if is_mark else list(run)
        made, starter, last = [], None, 0
        for code, number in ordered:
            both = composite(made[starter], code) if starter is not None and (last == 0 or last < number) else None
            if both is not None:
                made[starter] = both
                continue
            if number == 0:
                starter = len(made)
            last = number
            made.append(code)
        return "".join(map(chr, made))

    return normalized


def check(classes, entries):
    normalized = normalizer(classes, entries)
    draw = random.Random(5)
    firsts = sorted({first for _, first, _, _ in entries})
    lasts = sorted({last for _, _, last, _ in entries} - {0})
    kinds = [firsts, lasts, lasts, sorted(classes), sorted(classes), [code for code, *_ in entries], SCALARS, [0x20, 0x61, 0xE9],
             range(0x1100, 0x1200), HANGUL, [*range(0x3040, 0x3100)]]
    for count in range(400_000):
        text = "".join(chr(draw.choice(draw.choice(kinds))) for _ in range(draw.randint(1, 9)))
        assert normalized(text) == compose(text), [hex(ord(character)) for character in text]
    for code in SCALARS:
        assert normalized(chr(code)) == compose(chr(code)), hex(code)


def lines_of(numbers):
    lines, line = [], "   "
    for number in numbers:
        if len(line) + len(f" {number},") > 110:
            lines.append(line)
            line = "   "
        line += f"{' ' if line == '   ' else ''}{number},"
    return "\n".join([*lines, line]).rstrip(",")


def main():
    classes, entries = combining_classes(), decompositions()
    check(classes, entries)
    tables = {}
    for name, kind in (("composing", lambda entry: entry[3]), ("decomposing", lambda entry: entry[2] and not entry[3]),
                       ("replaced", lambda entry: not entry[2])):
        numbers, before = [], 0
        for code, first, last, _ in filter(kind, entries):
            numbers += [code - before, first] + ([last] if last else [])
            before = code
        tables[name] = numbers
    runs, before = [], 0
    for number, run in itertools.groupby(enumerate(sorted(classes)), key=lambda one: (classes[one[1]], one[1] - one[0])):
        codes = [code for _, code in run]
        runs += [codes[0] - before, len(codes), number[0]]
        before = codes[-1] + 1
    tables["combining"] = runs
    text = "".join(f"const std::array<uint32_t, {len(numbers)}> {name}_characters = {{\n{lines_of(numbers)}}};\n"
                   for name, numbers in tables.items())
    path = pathlib.Path(__file__).parent.parent / "src/unicode/normalization_tables.cpp"
    path.write_text(f"""// SPDX-License-Identifier: Apache-2.0
// Normalization Form C, made by scripts/make_normalization_tables.py with tokenizers {tokenizers.__version__}.
#include "unicode/normalization.h"

namespace lockstep {{

// clang-format off
{text}// clang-format on

}}  // namespace lockstep
""")
    print({name: len(numbers) for name, numbers in tables.items()}, path.read_text().count("\n"), "lines")


main()
