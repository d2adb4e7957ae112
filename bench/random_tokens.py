# SPDX-License-Identifier: Apache-2.0
"""Draws the tokens of data.dataset = random_tokens and the order of its samples, bit-identical to Lockstep."""

import numpy
import torch

SAMPLES = 1 << 24  # samples of the training set, as in src/language/language_data.cpp


def philox(key, counter, rounds=10):
    """Returns four arrays of 32-bit words: Philox4x32 (Salmon et al. 2011) of four such arrays."""
    words = [numpy.asarray(word, numpy.uint64) for word in counter]
    low, high = numpy.uint64(key & 0xffffffff), numpy.uint64(key >> 32)
    mask, half = numpy.uint64(0xffffffff), numpy.uint64(32)
    for _ in range(rounds):
        first, second = words[0] * numpy.uint64(0xD2511F53), words[2] * numpy.uint64(0xCD9E8D57)
        words = [(second >> half) ^ words[1] ^ low, second & mask, (first >> half) ^ words[3] ^ high, first & mask]
        low, high = (low + numpy.uint64(0x9E3779B9)) & mask, (high + numpy.uint64(0xBB67AE85)) & mask
    return words


def random_tokens(indices, length, vocabulary, seed):
    """Returns the first tokens of these samples as int64 [samples, length]."""
    blocks = numpy.arange((length + 3) // 4, dtype=numpy.uint64)
    index, block = numpy.meshgrid(numpy.asarray(indices, numpy.uint64), blocks, indexing="ij")
    zero = numpy.zeros_like(index)
    words = philox(seed, [block, index & numpy.uint64(0xffffffff), index >> numpy.uint64(32), zero])
    words = numpy.stack(words, axis=-1).reshape(len(indices), -1)[:, :length]
    return torch.from_numpy((words * numpy.uint64(vocabulary) >> numpy.uint64(32)).astype(numpy.int64))


def batches(steps, batch_size, block_size, vocabulary, seed):
    """Returns the batches of one replica from step 0 on, as int64 [steps, batch_size, block_size + 1]."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(seed))[:steps * batch_size]
    tokens = random_tokens(order.tolist(), block_size + 1, vocabulary, seed)
    return tokens.reshape(steps, batch_size, block_size + 1)
