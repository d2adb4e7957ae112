# SPDX-License-Identifier: Apache-2.0
"""The table bench/results/<GPU>.csv, and the state of the GPU from nvidia-smi. bench_kernels writes the table too."""

import csv
import datetime
import re
import subprocess
from pathlib import Path

from processor import commit

REPOSITORY = Path(__file__).resolve().parent.parent
COLUMNS = ["date", "commit", "device", "driver", "benchmark", "case", "shape", "dtype", "us", "spread", "rate", "unit",
           "ceiling", "percent", "peer", "peer_rate"]


def output(*command):
    try:
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def query(*fields):
    """Returns fields of the first GPU from nvidia-smi. It never changes a setting of the GPU."""
    line = output("nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader").split("\n")[0]
    return [field.strip() for field in line.split(",")]


def state():
    """Returns the current clock, power and temperature. They explain unexpected figures."""
    return ", ".join(query("clocks.sm", "power.draw", "temperature.gpu"))


class Table:
    def __init__(self, path=None):
        self.device, self.driver = (query("name", "driver_version") + ["unknown"])[:2]
        slug = re.sub("[^a-z0-9]", "_", self.device.lower())
        self.path = path or REPOSITORY / "bench" / "results" / f"{slug}.csv"

    def append(self, rows):
        """Appends rows. Each row is a dict of the columns from `case` on. Missing columns stay empty."""
        place = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
                 "commit": commit(), "device": self.device, "driver": self.driver, "benchmark": "compare_pytorch"}
        is_new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            if is_new:
                writer.writeheader()
            for row in rows:
                writer.writerow(place | row)

    def newest(self, benchmark):
        """Returns the last row of each (case, shape, dtype)."""
        if not self.path.exists():
            return {}
        with self.path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["benchmark"] == benchmark]
        return {(row["case"], row["shape"], row["dtype"]): row for row in rows}
