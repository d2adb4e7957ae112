#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/unicode/class_tables.cpp: the class of every character, according to tokenizers and tiktoken.

Asks both libraries for the class of every Unicode scalar value. Writes nothing unless they agree. The number of characters
that they treat as assigned identifies their Unicode version.

    python3 scripts/make_character_classes.py      # needs tokenizers and tiktoken
"""
import itertools
import pathlib

import tiktoken
import tokenizers
from tokenizers import Regex, pre_tokenizers

# The number of assigned characters in each version, without controls, private use and surrogates (unicode.org/versions).
VERSIONS = {149186: "15.0", 149813: "15.1", 154998: "16.0", 159801: "17.0"}
CLASSES = {  # in order of CharacterClass
    "other": None, "white_space": r"\s", "number": r"\p{N}", "lower": r"\p{Ll}", "upper": r"[\p{Lu}\p{Lt}]",
    "caseless": r"[\p{Lm}\p{Lo}]", "mark": r"\p{M}"}
SCALARS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
TEXT = "".join(map(chr, SCALARS))


def known_to_tokenizers(pattern):
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    return {ord(character) for piece, _ in split.pre_tokenize_str(TEXT) for character in piece}


def known_to_tiktoken(pattern):
    encoding = tiktoken.Encoding("probe", pat_str=pattern + "+", special_tokens={},
                                 mergeable_ranks={bytes([byte]): byte for byte in range(256)})
    return set(map(ord, bytes(encoding.encode_ordinary(TEXT)).decode()))


def known(pattern):
    characters = known_to_tokenizers(pattern)
    if characters != known_to_tiktoken(pattern):
        raise SystemExit(f"tokenizers {tokenizers.__version__} and tiktoken {tiktoken.__version__} disagree on {pattern}")
    return characters


def with_turns(runs):
    """Joins single upper and lower characters that take turns into runs of class 7."""
    joined = []
    while runs:
        length = 0
        while length < len(runs) and runs[length] == ((1, 4), (1, 3))[length % 2]:
            length += 1
        joined.append((length, 7) if length > 1 else runs[0])
        runs = runs[max(length, 1):]
    return joined


def main():
    version = VERSIONS[len(known(r"\P{Cn}") - known(r"\p{Co}") - known(r"\p{Cc}"))]
    class_of = dict.fromkeys(range(0x110000), 0)
    for number, pattern in enumerate(CLASSES.values()):
        for character in known(pattern) if pattern else ():
            assert class_of[character] == 0
            class_of[character] = number
    assert known(r"\p{L}") == {c for c, number in class_of.items() if 3 <= number <= 5}
    runs = with_turns([(len(list(run)), number) for number, run in itertools.groupby(class_of[c] for c in range(0x110000))])
    lines, line = [], "   "
    for length, number in runs:
        entry = f" {length * 8 + number},"
        if len(line + entry) > 110:
            lines.append(line)
            line = "   "
        line += entry
    lines.append(line)
    path = pathlib.Path(__file__).parent.parent / "src/unicode/class_tables.cpp"
    path.write_text(f"""// SPDX-License-Identifier: Apache-2.0
// Unicode {version}, made by scripts/make_character_classes.py with tokenizers {tokenizers.__version__} and tiktoken {tiktoken.__version__}.
#include "unicode/character_classes.h"

namespace lockstep {{

// clang-format off
const std::array<uint32_t, class_run_count> class_runs = {{
""" + "\n".join(lines).rstrip(",") + """};
// clang-format on

}  // namespace lockstep
""")
    print(f"Unicode {version}, {len(runs)} runs, {len(lines)} lines")


main()
