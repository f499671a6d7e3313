"""The comparison of arXiv 2401.11469 on images of digits: what stragglers cost, and what each way of balancing gives back.

    stragglers.py MOTLEY DIR DIGITS [--steps 240] [--seeds 1,2,3] [--folds 5] [--policies NAMES] [--scenes NAMES]

DIR is what `models/export.py --bench DIR` wrote: vit1, vit2 and vit3 are three initialisations, a seed each. DIGITS is digits.csv.gz of
scikit-learn (Debian's python3-sklearn has it): 1,797 images of 8 x 8. Each fold of them is for testing once, so that every image is.

Layers are split by columns and rows over equal devices of a modelled clock, so that step times are exact; after ten steps one of four
becomes 2, 4 or 8 times slower, or four of eight 2, 4, 6 and 8 times. A line a policy: the median step of the second half, the same by the
model, the part of the test images that is told, and how much more that is than with nothing done, in per cent and with its standard error over the
pairs of a seed and a fold. A policy that leaves nothing out is trained on the first pair alone. Last, by how much more is told
with columns cut by priority than at random: as many columns, pair by pair.

The model: a device's step is M, in the products that can be cut or lent, and O; a slow one's is chi (M + O). Communication is added as it
was before anything was slow.

    nothing   max chi (M + O)
    zero      what is above the mean of all steps is cut, at most 3/4 of M
    migrate   lent evenly to those that are fast, until all take as long or M is lent; nothing for what travels
    semi      the lesser of these two
    shares    all of it at the sum of the speeds
"""

import argparse
import gzip
import json
import math
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy

SCENES = {"2": [2, 1, 1, 1], "4": [4, 1, 1, 1], "8": [8, 1, 1, 1], "2/4/6/8": [2, 4, 6, 8, 1, 1, 1, 1]}
BATCH, START = 64, 10
# By the nodes of the export: packed QKV and the first of two layers by columns, what follows by rows.
COLUMNS_AND_ROWS = ["*attention*=heads",
                    *(f"node_MatMul_{n}=dim3" for n in (16, 88, 154)), *(f"node_MatMul_{n}=out" for n in (77, 143, 209)),
                    *(f"node_MatMul_{n}=in" for n in (75, 86, 141, 152, 207, 218))]  # fmt: skip
WEIGHTS, TOKENS = 3 * 12 * 128 * 128, BATCH * 16  # BENCH_VIT of models/export.py
FLOPS = 400e9
RATES = "gflops: 400, bandwidth: 64GB, functions: 16G"


def step_of_nothing(slow, m, o):
    return max(slow) * (m + o)


def step_of_zero(slow, m, o):
    steps = [k * (m + o) for k in slow]
    mean = statistics.mean(steps)
    return max(max(min(step, mean), k * (m * 0.25 + o)) for k, step in zip(slow, steps))


def step_of_migrate(slow, m, o):
    """The least step when slow devices lend part of their products evenly to the others."""
    helpers = [k for k in slow if k == 1]

    def is_enough(step):
        lent = sum(max(0.0, min(m, (m + o) - step / k)) for k in slow if k > 1)
        fits = all(k * o <= step for k in slow)
        return fits and m + o + lent / len(helpers) <= step

    low, high = m + o, max(slow) * (m + o)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def step_of_semi(slow, m, o):
    return min(step_of_zero(slow, m, o), step_of_migrate(slow, m, o))


def step_of_shares(slow, m, o):
    return len(slow) * (m + o) / sum(1 / k for k in slow)


@dataclass(frozen=True)
class Policy:
    """Options of `train`, the step by the model from (slow, M, O), and whether results differ."""

    options: str
    step: Callable[[list[float], float, float], float]
    is_lossy: bool = False


CUTS = "--allow cuts --accuracy-budget 1"
POLICIES = {
    "nothing": Policy("--balance off", step_of_nothing),
    "priority": Policy(f"--balance zero {CUTS}", step_of_zero, True),
    "random": Policy(f"--balance zero {CUTS} --cut-pick random", step_of_zero, True),
    "migrate": Policy("--balance migrate", step_of_migrate),
    "semi": Policy(f"--balance semi {CUTS}", step_of_semi, True),
    "shares": Policy("--balance shares", step_of_shares),
}


@dataclass(frozen=True)
class Result:
    step: float  # milliseconds
    busy: float  # of a step in which nobody is slow
    comm: float
    told: float  # part of the test images


def read_digits(path, folds, work):
    """Writes the four arrays of every fold; images are in [0, 1]."""
    rows = numpy.loadtxt(gzip.open(path), delimiter=",")
    rows = rows[numpy.random.default_rng(0).permutation(len(rows))]
    images, labels = (rows[:, :64] / 16).astype(numpy.float32).reshape(-1, 8, 8), rows[:, 64].astype(numpy.int64)
    for fold in range(folds):
        is_test = numpy.arange(len(rows)) % folds == fold
        for name, part in ("train", ~is_test), ("test", is_test):
            numpy.save(work / f"images_{name}{fold}.npy", images[part])
            numpy.save(work / f"labels_{name}{fold}.npy", labels[part])


def write_cluster(path, n):
    devices = "".join(f"  - {{name: d{i}, threads: 1, {RATES}}}\n" for i in range(n))
    path.write_text(f"clock: modelled\ndevices:\n{devices}")


def train(options, pair, slow, policy, work):
    seed, fold = pair
    cluster, out = work / f"{len(slow)}.yaml", work / "run"
    command = [options.motley, "train", options.dir / f"vit{seed}/model.onnx", "--dim", f"batch={BATCH}", "-c", cluster, "-q",
               "--data", f"npy:images={work}/images_train{fold}.npy,labels={work}/labels_train{fold}.npy",
               "--loss", "cross_entropy:logits:labels,smoothing=0.1", "--steps", str(options.steps), "--seed", str(seed),
               "--optimizer", "adamw:lr=3e-3,wd=0.05,clip=1.0,schedule=cosine,warmup=20", "--out", out,
               *policy.options.split()]  # fmt: skip
    for choice in COLUMNS_AND_ROWS:
        command += ["--fix", choice]
    for i, k in enumerate(slow):
        if k > 1:
            command += ["--slow", f"{START}:d{i}={k}"]
    subprocess.run(["rm", "-rf", out], check=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_result(options, out, measure(options, out, fold, work))


def read_result(options, out, told):
    steps = [json.loads(line) for line in open(out / "steps.jsonl")]
    steps = [step["ranks"] for step in steps if "ranks" in step]
    times = [r["busy_ms"] + r["comm_ms"] + r["wait_ms"] for (r, *_) in steps[options.steps // 2 :]]
    calm = [rank for ranks in steps[2:START] for rank in ranks]
    busy, comm = (statistics.median(rank[key] for rank in calm) for key in ("busy_ms", "comm_ms"))
    return Result(statistics.median(times), busy, comm, told)


def measure(options, out, fold, work):
    labels = numpy.load(work / f"labels_test{fold}.npy")
    subprocess.run([options.motley, "run", out / "model.onnx", "--dim", f"batch={len(labels)}", "--input",
                    f"images={work}/images_test{fold}.npy", "--output", f"logits={work}/logits.npy"],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    return float((numpy.load(work / "logits.npy").argmax(1) == labels).mean())


def products_ms(n):
    """Of a step, in the products of the layers that are split, on one of n devices: 6 FLOPs a weight and token."""
    return 1e3 * 6 * WEIGHTS * TOKENS / n / FLOPS


def compare(runs, others):
    """By how much more is told, in per cent, and the standard error, over pairs of seed and fold."""
    d = [100 * (a.told - b.told) for a, b in zip(runs, others)]  # as many as were trained of both
    error = statistics.stdev(d) / math.sqrt(len(d)) if len(d) > 1 else math.nan
    return f"{statistics.mean(d):+.2f} +- {error:.2f}"


def run_scene(options, scene, pairs, calm, work):
    """A line a policy; `calm` is what is told when all are as fast, which nobody's speed changes."""
    slow, runs = SCENES[scene], {}
    m = products_ms(len(slow))
    for name in options.policies.split(","):
        policy = POLICIES[name]
        runs[name] = [train(options, pair, slow, policy, work) for pair in (pairs if policy.is_lossy else pairs[:1])]
        first = runs[name][0]
        model = policy.step(slow, m, first.busy - m) + first.comm
        told = statistics.mean(run.told for run in runs[name])
        print(f"{scene:8} {name:9} {first.step:8.2f} {model:8.2f} {told:8.4f}   {compare(runs[name], calm)}", flush=True)
    if "priority" in runs and "random" in runs:
        print(f"{scene:8} priority over random: {compare(runs['priority'], runs['random'])}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("motley")
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("digits")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--scenes", default=",".join(SCENES))
    options = parser.parse_args()
    pairs = [(seed, fold) for fold in range(options.folds) for seed in options.seeds.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        read_digits(options.digits, options.folds, work)
        for n in 4, 8:
            write_cluster(work / f"{n}.yaml", n)
        calm = [train(options, pair, [1, 1, 1, 1], POLICIES["nothing"], work) for pair in pairs]
        print(f"nobody slow: {statistics.mean(run.told for run in calm):.4f} are told, over {len(pairs)} pairs")
        print(f"{'slow':8} {'policy':9} {'step, ms':>8} {'model':>8} {'told':>8}   more than calm, %")
        for scene in options.scenes.split(","):
            run_scene(options, scene, pairs, calm, work)


if __name__ == "__main__":
    main()
