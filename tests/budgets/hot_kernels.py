# SPDX-License-Identifier: Apache-2.0
"""Lists the hot kernels, and says which of their instructions are counted.

The kind of a kernel names the counted region, and the unit that its figures are for:
  products  the loop with the most HMMA; its figures are for one HMMA of a warp
  stream    the innermost loop with the most accesses of the kernel's greatest width to global memory, or of
            the opcode `most`; for 16 bytes a lane
  whole     the whole kernel, whose threads do not loop; for 16 bytes a lane
  sums      the innermost loop with the most fused multiply-adds; for one of them
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HotKernel:
    """A kernel and how it is launched.

    `threads` and `dynamic_shared_bytes` are those of the launch in the kernel's file. Registers and static
    shared memory come from ptxas. `products` is the number of HMMA in an iteration of a warp.
    """

    file: str
    name: str
    kind: str
    threads: int
    dynamic_shared_bytes: int = 0
    products: int = 0
    most: str = ""


def attention(name: str, size: int, dropped: bool, rows: int, columns: int, factors: int) -> HotKernel:
    """Returns a kernel of attention on tensor cores.

    A block of four warps owns `rows` rows, and walks over tiles of `columns` rows of the other operand. For
    each tile it makes `factors` products of 2 * rows * columns * size operations.
    """
    file = "attention_forward.cu" if name == "forward_kernel" else "attention_backward.cu"
    owned = 1 if name == "forward_kernel" else 2  # queries; or queries and dy; or keys and values
    shared = 2 * size * (owned * rows + 4 * columns)
    if name.endswith("key_gradient_kernel"):
        shared += 4 * columns * 4  # two statistics for each query of two stages
    products = factors * (rows // 4 // 16) * (columns // 8) * (size // 16)
    return HotKernel(file, f"{name}<bf16, {size}, {str(dropped).lower()}>", "products", 128, shared, products)


# Tiles of 32 rows in fp32, for heads of 64.
FP32_TILE_BYTES = 4 * 32 * (64 + 4)
FP32_WEIGHTS_BYTES = 4 * 32 * (32 + 4)
FP32_BACKWARD_BYTES = 4 * FP32_TILE_BYTES + 2 * FP32_WEIGHTS_BYTES + 4 * 2 * 32

ATTENTION = [
    attention("forward_kernel", 64, False, rows=128, columns=64, factors=2),
    attention("forward_kernel", 64, True, rows=128, columns=64, factors=2),
    attention("forward_kernel", 128, False, rows=128, columns=32, factors=2),
    attention("forward_kernel", 128, True, rows=128, columns=32, factors=2),
    attention("key_gradient_kernel", 64, False, rows=128, columns=32, factors=4),
    attention("key_gradient_kernel", 64, True, rows=64, columns=64, factors=4),
    attention("key_gradient_kernel", 128, False, rows=64, columns=32, factors=4),
    attention("key_gradient_kernel", 128, True, rows=64, columns=32, factors=4),
    attention("grouped_key_gradient_kernel", 64, False, rows=64, columns=64, factors=4),
    attention("grouped_key_gradient_kernel", 128, False, rows=64, columns=32, factors=4),
    attention("query_gradient_kernel", 64, False, rows=128, columns=32, factors=3),
    attention("query_gradient_kernel", 64, True, rows=128, columns=32, factors=3),
    attention("query_gradient_kernel", 128, False, rows=64, columns=32, factors=3),
    attention("query_gradient_kernel", 128, True, rows=64, columns=32, factors=3),
    HotKernel(
        "attention_fp32.cu",
        "forward_kernel<64, false>",
        "sums",
        128,
        3 * FP32_TILE_BYTES + FP32_WEIGHTS_BYTES,
    ),
    HotKernel("attention_fp32.cu", "key_gradient_kernel<64, false>", "sums", 128, FP32_BACKWARD_BYTES),
    HotKernel("attention_fp32.cu", "query_gradient_kernel<64, false>", "sums", 128, FP32_BACKWARD_BYTES),
]

# Layer norm of 768 columns: four rows at once, a warp for each. RMSNorm of heads of 128: eight rows at once. RMSNorm
# of up to 2048 columns: four warps for a row. Cross entropy of GPT-2's 50304 classes.
ROWS = [
    HotKernel("layer_norm.cu", "forward_kernel<RowLayout<bf16, 1, 24, true>, false>", "stream", 128, 8),
    HotKernel("layer_norm.cu", "forward_kernel<RowLayout<bf16, 1, 24, true>, true>", "stream", 128, 8),
    HotKernel(
        "layer_norm.cu", "backward_kernel<RowLayout<bf16, 1, 24, true>, false>", "stream", 128, 4 * 768 * 4
    ),
    HotKernel(
        "layer_norm.cu", "backward_kernel<RowLayout<bf16, 1, 24, true>, true>", "stream", 128, 4 * 768 * 4
    ),
    HotKernel("layer_norm.cu", "forward_kernel<ShortRows<bf16, 128, true>, false>", "stream", 128, 8),
    HotKernel("layer_norm.cu", "backward_kernel<ShortRows<bf16, 128, true>, false>", "stream", 128, 8 * 128 * 4),
    HotKernel(
        "layer_norm.cu", "forward_kernel<Uncentred<RowLayout<bf16, 4, 16, true> >, false>", "stream", 128, 32
    ),
    HotKernel(
        "layer_norm.cu", "backward_kernel<Uncentred<RowLayout<bf16, 4, 16, true> >, false>", "stream", 128, 32
    ),
    HotKernel(
        "cross_entropy.cu",
        "shared_row_kernel<SoftmaxLayout<bf16, 512, true> >",
        "stream",
        512,
        100768,
        most="STG",
    ),
    HotKernel("cross_entropy.cu", "two_reads_kernel<SoftmaxLayout<bf16, 512, true> >", "stream", 512, 128),
    HotKernel("softmax.cu", "forward_kernel<SoftmaxLayout<bf16, 512, true> >", "stream", 512, 128),
    HotKernel("softmax.cu", "backward_kernel<SoftmaxLayout<bf16, 512, true> >", "stream", 512, 128),
]

# The counted loop of fold_kernel has no additions. The counted loop of rows_kernel adds pieces, in fp32.
PASSES = [
    HotKernel("adamw.cu", "adamw_kernel", "stream", 256),
    HotKernel("sgd.cu", "sgd_kernel<4>", "whole", 256),
    HotKernel("fold.cu", "fold_kernel<64>", "stream", 128, 3 * 128 * 16),
    HotKernel("embedding.cu", "forward_kernel<bf16, true>", "stream", 256),
    HotKernel("embedding.cu", "pieces_kernel<bf16, 8>", "stream", 256),
    HotKernel("embedding.cu", "rows_kernel<bf16, 8>", "stream", 256),
    HotKernel("gelu.cu", "map_kernel<8, 1, GeluOf<(Gelu)0>, bf16, bf16>", "whole", 256),
    HotKernel("gelu.cu", "map_kernel<8, 1, GeluOf<(Gelu)1>, bf16, bf16>", "whole", 256),
    HotKernel("gelu.cu", "map_kernel<8, 2, GeluGradient<(Gelu)0>, bf16, bf16>", "whole", 256),
    HotKernel("gelu.cu", "map_kernel<8, 2, GeluGradient<(Gelu)1>, bf16, bf16>", "whole", 256),
    HotKernel("swiglu.cu", "map_kernel<8, 2, Swiglu, bf16, bf16>", "whole", 256),
    HotKernel("swiglu.cu", "backward_kernel<8, bf16>", "whole", 256),
    HotKernel("rotary.cu", "rotate_kernel<true, bf16>", "whole", 256),
    HotKernel("arithmetic.cu", "map_kernel<8, 2, Function<(Operation)0>, bf16, bf16>", "whole", 256),
    HotKernel("dropout.cu", "dropout_kernel<bf16, true>", "whole", 256),
    HotKernel("transpose.cu", "run_kernel<uint4>", "whole", 256),
    HotKernel("transpose.cu", "tile_kernel<unsigned short>", "whole", 256, 64 * 66 * 2),
    HotKernel("batched_matmul.cu", "product_kernel<bf16, bf16>", "sums", 256, 2 * 16 * 65 * 4),
    HotKernel("matmul_epilogue.cu", "finish_product_kernel<8, bf16, bf16>", "whole", 256),
    HotKernel("matmul_sums.cu", "column_sum_kernel<8, bf16>", "stream", 256, 4 * 256 * 8),
    HotKernel("sum.cu", "sum_kernel<bf16>", "stream", 256),
    HotKernel("sum.cu", "square_kernel", "stream", 256),
    HotKernel("sum.cu", "column_kernel<bf16>", "stream", 512, 4 * 512),
    HotKernel("sum.cu", "row_kernel<bf16>", "stream", 256),
]

HOT_KERNELS = ATTENTION + ROWS + PASSES
