"""What balancing costs when nothing happens: a step under each --balance over one under --balance off.

    balance_cost.py MOTLEY MODEL DATA [--blocks 30] [--steps 4] [--modes off,auto,zero,semi] [--options "--devices 4 --threads 1"]

DATA is that of --data; the loss is cross_entropy:logits:labels. All trainings run at once, but one at a time: the others are stopped. A
round gives each, in an order that is turned around every time, a block of so many steps on the host's clock, after one that finds its caches
cold. So nothing of a training's start is in it, and a machine that gets slower does so for all. Printed are the median over the
rounds of a block over that of `off` in the same round, and the limit below which that median lies with 95 % confidence, by the
order statistic of the binomial. Nothing happens: it is told if a policy decided anything.

    auto      shares that follow measured speeds, and plans where they can't; `shares` is part of it
    zero      cuts, with consent: layers have lists of columns, which are empty
    migrate   lending: exchanges with helpers, of size 0
    semi      cuts and lending
"""

import argparse
import contextlib
import math
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MODES = {
    "off": "--balance off",
    "shares": "--balance shares",
    "auto": "--balance auto",
    "zero": "--balance zero --allow cuts",
    "migrate": "--balance migrate",
    "semi": "--balance semi --allow cuts",
}
POLL = 0.0005  # seconds


class Training:
    """Stopped but in a block. Its log has a line a step."""

    def __init__(self, options, mode, work):
        self.log = work / f"{mode}.jsonl"
        self.log.touch()
        command = [options.motley, "train", options.model, "--data", options.data, "-q", "--seed", "1", "--steps", "1000000",
                   "--loss", "cross_entropy:logits:labels", "--optimizer", "adamw:lr=3e-4", "--hang-timeout", "0",
                   "--out", str(work / mode), "--log", str(self.log),
                   *shlex.split(options.options), *MODES[mode].split()]  # fmt: skip
        self.process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        self.lines, self.decisions = open(self.log), 0
        self.wait_for(3)  # the first steps touch their memory
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        os.killpg(self.process.pid, number)  # it leads the group of its ranks

    def wait_for(self, n_steps):
        while n_steps:
            line = self.lines.readline()
            if line:
                n_steps -= '"loss"' in line
                self.decisions += '"action"' in line
            elif self.process.poll() is not None:
                raise SystemExit(f"{shlex.join(map(str, self.process.args))} ended with {self.process.returncode}")
            else:
                time.sleep(POLL)

    def block(self, n_steps):
        """Seconds of a step."""
        self.signal(signal.SIGCONT)
        self.wait_for(1)
        start = time.monotonic()
        self.wait_for(n_steps)
        seconds = time.monotonic() - start
        self.signal(signal.SIGSTOP)
        return seconds / n_steps

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait()


def upper_limit(values):
    """Below which the median lies with 95 % confidence; none of fewer than five values."""
    values, n, below = sorted(values), len(values), 0.0
    for k in range(n):
        below += math.comb(n, k) / 2**n  # that at most k of them are below the median
        if below >= 0.95:
            return values[k]
    return math.inf


def report(mode, blocks):
    ratios = [a / b for a, b in zip(blocks[mode], blocks["off"])]
    print(f"{mode:8} {1e3 * statistics.median(blocks[mode]):8.2f} ms a step; over off: median "
          f"{statistics.median(ratios):.4f}, at most {upper_limit(ratios):.4f} (95 %)", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("motley")
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--modes", default="off,auto,zero,semi")
    parser.add_argument("--options", default="--devices 4 --threads 1")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # trainings that are stopped end with this one
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as trainings:
        running = {}
        for mode in options.modes.split(","):
            running[mode] = Training(options, mode, pathlib.Path(folder))
            trainings.callback(running[mode].end)
        blocks, order = {mode: [] for mode in running}, list(running)
        for _ in range(options.blocks):
            for mode in order:
                blocks[mode].append(running[mode].block(options.steps))
            order.reverse()
        print(f"{options.blocks} blocks of {options.steps} steps")
        for mode in running:
            report(mode, blocks)
            if running[mode].decisions:
                print(f"{mode:8} something happened: {running[mode].decisions} decisions, see --log")


if __name__ == "__main__":
    main()
