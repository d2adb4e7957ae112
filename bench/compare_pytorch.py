#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the same training run in Lockstep and in PyTorch, in PyTorch's fastest settings.

--device cpu (the default) runs bench/compare_cpu.py. Its rows are appended to bench/results/compare_cpu.csv.
--device cuda runs bench/compare_gpu.py, which times whole steps and single kernels. Its rows are appended to
bench/results/<GPU>.csv. Needs PyTorch and NumPy.
"""

import argparse
import functools
import sys
import tempfile
from pathlib import Path

import torch

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "golden"))
import compare_cpu  # noqa: E402
import compare_gpu  # noqa: E402
from lockstep_run import Lockstep  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    on_cpu, on_gpu = [*compare_cpu.WORKLOADS, *compare_cpu.OTHERS], list(compare_gpu.WORKLOADS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--workload", action="append", help="may be repeated; all if absent: "
                        f"{', '.join(on_cpu)} on the CPU; {', '.join(on_gpu)} on a GPU")
    parser.add_argument("--mode", action="append", choices=compare_cpu.MODES,
                        help="PyTorch's mode on the CPU; may be repeated (both)")
    parser.add_argument("--precision", action="append", choices=compare_cpu.PRECISIONS,
                        help="precision on the CPU; may be repeated (both)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks on the CPU (2)")
    parser.add_argument("--threads", type=int, default=1, help="threads per rank on the CPU, in both programs (1)")
    parser.add_argument("--steps", type=int, default=0, help="steps of each run on the CPU; 0: the workload's own (0)")
    parser.add_argument("--seconds", type=float, default=600, help="seconds for the whole comparison on a GPU (600)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each program (5)")
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="constant learning rate (3e-4)")
    parser.add_argument("--port", type=int, default=29411, help="port at which PyTorch's ranks connect (29411)")
    parser.add_argument("--program", type=Path, help="train_gpt (build/cpu/bin or build/cuda/bin)")
    parser.add_argument("--table", action="store_true", help="print README's table of the newest rows without measuring")
    parser.add_argument("--cpu", help="processor of --table, as the rows name it (the newest row's)")
    options = parser.parse_args()
    if options.table:
        print(compare_cpu.readme_table(options.cpu))
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU")
    known = on_gpu if options.device == "cuda" else on_cpu
    if unknown := set(options.workload or []) - set(known):
        parser.error(f"--workload {unknown.pop()}: it must be one of {', '.join(known)}")
    options.program = (options.program or REPOSITORY / f"build/{options.device}/bin/train_gpt").resolve()
    options.mode = options.mode or compare_cpu.MODES
    options.precision = options.precision or compare_cpu.PRECISIONS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.device == "cuda":
            return compare_gpu.run(options, functools.partial(Lockstep, [], options.program), folder)
        return compare_cpu.run(options, folder)


if __name__ == "__main__":
    sys.exit(main())
