#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains small tokenizers with the steps of Llama 3's, Qwen 3's and SmolLM2's, and writes the references' ids.

Each folder of tests/golden/families/ has a tokenizer.json and a tokenizer_config.json. expected.json has, for each, the ids
of texts by tokenizers, also without special tokens, and checksums as in make_tokenizers.py. `chats` has conversations: their
ids by the chat templates of transformers, and which of these are the assistant's. `normalized` has checksums of texts in
NFC: those of every scalar value in three contexts, and of random texts of `characters`."""
import itertools
import json
import pathlib
import sys
import zlib

import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import compare_tokenizers as compare  # noqa: E402
from make_tokenizers import TEXTS, checksum  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "families"
MORE_TEXTS = ["'S 'RE don'T", "0 12 345\n\n6\u06607\u00b2\u00bd", "x  1  22 \t3", "a\r\n\r\nb\n \n c \r", "e\u0301\u0327 \u1ec7 e\u0323\u0302",
              "\u1100\u1161\u11a8\u1100 \ud55c\uae00\u11a8", "\u0958!\u212b\u0344 \uf900\U0002f800", "=\u0338>\u0338 \u037e\u1fef",
              "\u09c7\u09be \u0cc6\u0cc2\u0cd5", "\U00011de0\U00016ff5 \U0001F1E9\U0001F1EA\u200d\u00a0", "<|im_start|>user<|im_end|>\n",
              "<think>\n\n</think>", "<e\u0301!x> <\u00e9!x>", "<|eot_id|><|begin_of_text|>a\u0338", "\u0301start", "K!; \u212a!\u037e"]
CONTEXTS = ("a{}", "{}\u0301", "\u1100{}")


def bytes_after(first, **options):
    return pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=False, **options)])


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def special(*names):
    return [AddedToken(name, special=True, normalized=False) for name in names]


def trained(pre_tokenizer, normalizer=None, first=(), **options):
    made = Tokenizer(models.BPE(**options))
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([compare.mixed_text(1 << 18, 4)], trainers.BpeTrainer(
        vocab_size=560, show_progress=False, special_tokens=list(first), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def llama3():
    made = trained(bytes_after(split(compare.LLAMA3), use_regex=False), ignore_merges=True)
    made.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>",
                                    "<|end_header_id|>", "<|eot_id|>", "<|reserved_special_token_1|>"))
    begin = ("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[begin])])
    return made, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}


def qwen3():
    made = trained(bytes_after(split(compare.LLAMA3.replace("{1,3}", "")), use_regex=False), normalizers.NFC())
    made.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    made.add_tokens([AddedToken(name, special=False, normalized=False) for name in ("<think>", "</think>")])
    made.add_tokens([AddedToken("<e\u0301!x>", special=False, normalized=True), AddedToken("K!;", special=False, normalized=True)])
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made, {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_prefix_space": False,
                  "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}


def smollm2():
    made = trained(bytes_after(pre_tokenizers.Digits(individual_digits=True)),
                   first=("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    return made, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}


def turns(prefix, content, end, after="", loop="messages"):
    """Returns a template of turns. Those of the assistant are generated."""
    return (f"{{% for m in {loop} %}}{{{{ {prefix} }}}}{{% if m['role'] == 'assistant' %}}{{% generation %}}{{{{ {content} + '{end}' }}}}"
            f"{{% endgeneration %}}{{% else %}}{{{{ {content} + '{end}' }}}}{{% endif %}}{after}{{% endfor %}}")


LLAMA_TURNS = ("'<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'", "m['content'] | trim", "<|eot_id|>")
CHATML_TURNS = ("'<|im_start|>' + m['role'] + '\\n'", "m['content']", "<|im_end|>", "{{ '\\n' }}")


def chatml(system):
    first = f"{{% if messages[0]['role'] != 'system' %}}{{{{ '<|im_start|>system\\n{system}<|im_end|>\\n' }}}}{{% endif %}}"
    return (first if system else "") + turns(*CHATML_TURNS)


TEMPLATES = {
    "llama3": ("llama3", "{{ bos_token }}" + turns(*LLAMA_TURNS)),
    "llama3.1": ("llama3", "{{ bos_token }}{% set first = messages[0]['content'] | trim if messages[0]['role'] == 'system' else '' %}"
                           "{% set rest = messages[1:] if messages[0]['role'] == 'system' else messages %}"
                           "{{ '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: ' "
                           "+ (date_string | default('26 Jul 2024')) + '\\n\\n' + first + '<|eot_id|>' }}" + turns(*LLAMA_TURNS, loop="rest")),
    "chatml": ("qwen3", chatml("")),
    "qwen2.5": ("qwen3", chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")),
    "qwen3": ("qwen3", "{% set ns = namespace(last_query_index=messages | length - 1) %}{% for m in messages %}{% if m['role'] == 'user' %}"
                       "{% set ns.last_query_index = loop.index0 %}{% endif %}{% endfor %}{% set reasoning_content = '' %}"
                       + turns(CHATML_TURNS[0], "('<think>\\n' + reasoning_content + '\\n</think>\\n\\n' + m['content'].lstrip('\\n') "
                               "if m['role'] == 'assistant' and loop.last and loop.index0 > ns.last_query_index else m['content'])",
                               *CHATML_TURNS[2:])),
    "smollm2": ("smollm2", chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face")),
}
CHATS = [["user:What is 2+2?", "assistant:4"], ["system:Be brief.", "user:Hi", "assistant:Hello!", "user:And 12345?", "assistant:\n\nYes \n"],
         ["user:\n line\n", "assistant: caf\u00e9 e\u0301\n", "assistant:again"], ["system:", "user:", "assistant:x", "user:\u3000last\x1f "],
         ["assistant:first", "system:\u0301late", "user:<think>no</think>", "assistant:\u0301ok"], ["assistant:alone\n\n"]]


def chat_of(turns_of_chat):
    return [dict(zip(("role", "content"), turn.split(":", 1))) for turn in turns_of_chat]


def rendered(made, config, template, chat):
    tokens = {key: value for key, value in config.items() if key.endswith("_token") and value}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, **tokens)
    encoded = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    return {"ids": encoded["input_ids"], "counted": encoded["assistant_masks"]}


def numbers_below(count, limit):
    """Returns the draws of a linear congruential generator that the test has, too."""
    state = 1
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (state >> 33) % limit


def normalized(characters):
    to_nfc = normalizers.NFC().normalize_str
    sums = [zlib.crc32("".join(to_nfc(context.format(chr(code))) + "\n" for code in compare.SCALARS).encode()) for context in CONTEXTS]
    draws = numbers_below(200_000, len(characters))
    texts = ("".join(characters[draw] for draw in itertools.islice(draws, 8)) for _ in range(25_000))
    return [*sums, zlib.crc32("".join(to_nfc(text) + "\n" for text in texts).encode())]


def main():
    characters = ("aeoA <=\u00e9\u00c5\u01fa\u1ec7\u0300\u0301\u0302\u0308\u030a\u031b\u0323\u0327\u0328\u0334\u0338\u0345\u0344\u05b4\u05bc\u05e9\u05c1"
                  "\ufb2c\u0591\u0594\u0653\u0627\u064b\u0915\u093c\u0958\u094d\u09c7\u09be\u09d7\u0cc6\u0cc2\u0cd5\u0ccb\u0dd9\u0dcf\u0dca\u0ddd\u1026\u1025"
                  "\u102e\u1100\u1112\u1161\u1175\u11a7\u11a8\u11c2\uac00\uac01\ud7a3\u3042\u3099\u304b\u1e9b\u212b\u2126\u037e\u1fef\uf900\U0002f800"
                  "\U0001d15e\U0001d165\U000110a5\U000110ba\U00011935\U00011930\u1abf\u0f71\u0f72\u0f74\u0f81\u302a\u20d0\n\u200d")
    texts = TEXTS + MORE_TEXTS
    expected = {"texts": texts, "ids": {}, "content": {}, "some": {}, "chats": [], "characters": characters,
                "normalized": normalized(characters)}
    made_of = {}
    for name, make in (("llama3", llama3), ("qwen3", qwen3), ("smollm2", smollm2)):
        made, config = made_of[name] = make()
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        spelled = json.loads(made.to_str())
        if name == "llama3":  # as files of older versions spell merges
            spelled["model"]["merges"] = [" ".join(merge) for merge in spelled["model"]["merges"]]
        (FOLDER / name / "tokenizer.json").write_text(json.dumps(spelled, ensure_ascii=True, separators=(",", ":")) + "\n")
        (FOLDER / name / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATES[name][1]}, indent=1) + "\n")
        expected["ids"][name] = [made.encode(text, add_special_tokens=False).ids for text in texts]
        expected["some"][name] = [checksum(made.encode(context.format(chr(code)), add_special_tokens=False).ids
                                           for code in compare.SCALARS[::61]) for context in compare.CONTEXTS]
        made.encode_special_tokens = True
        expected["content"][name] = [made.encode(text, add_special_tokens=False).ids for text in texts]
        made.encode_special_tokens = False
    for name, (tokenizer, template) in TEMPLATES.items():
        for turns_of_chat in CHATS:
            chat = chat_of(turns_of_chat)
            expected["chats"].append({"template": template, "name": name, "tokenizer": tokenizer, "messages": chat,
                                      **rendered(*made_of[tokenizer], template, chat)})
    (FOLDER / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
