"""The comparison of arXiv 2401.11469 on images of digits: what stragglers cost, and what each way of balancing gives back.

    stragglers.py MOTLEY DIR DIGITS [--steps 250] [--seeds 1,2,3]

DIR is what `models/export.py --bench DIR` wrote: vit1, vit2 and vit3 are three initialisations. DIGITS is digits.csv.gz of scikit-learn
(Debian's python3-sklearn has it): 1,797 images of 8 x 8, of which a fixed 20 % are for testing.

Layers are split by columns and rows over equal devices of a modelled clock, so that step times are exact; after ten steps one of four
becomes 2, 4 or 8 times slower, or four of eight 2, 4, 6 and 8 times. A line a policy: the median step of the second half, the same by
the model, and the part of the test images that are told, over the seeds. The model: a device's step is M, in the products that can be cut or
lent, and O; a slow one's is chi (M + O). Communication is added as it was before anything was slow.

    nothing   max chi (M + O)
    zero      what is above the mean of all steps is cut, at most 3/4 of M
    migrate   lent evenly to those that are fast, until all take as long or M is lent; nothing for what travels
    shares    all of it at the sum of the speeds
"""

import argparse
import gzip
import json
import pathlib
import statistics
import subprocess
import tempfile

import numpy

POLICIES = {
    "nothing": ["--balance", "off"],
    "zero, priority": ["--balance", "zero", "--allow", "cuts", "--accuracy-budget", "1"],
    "zero, random": ["--balance", "zero", "--allow", "cuts", "--accuracy-budget", "1", "--cut-pick", "random"],
    "migrate": ["--balance", "migrate"],
    "shares": ["--balance", "shares"],
}
SCENES = {"2": [2, 1, 1, 1], "4": [4, 1, 1, 1], "8": [8, 1, 1, 1], "2/4/6/8": [2, 4, 6, 8, 1, 1, 1, 1]}
BATCH, START = 64, 10
# By the nodes of the export: packed QKV and the first of two layers by columns, what follows by rows.
COLUMNS_AND_ROWS = ["*attention*=heads",
                    *(f"node_MatMul_{n}=dim3" for n in (16, 88, 154)), *(f"node_MatMul_{n}=out" for n in (77, 143, 209)),
                    *(f"node_MatMul_{n}=in" for n in (75, 86, 141, 152, 207, 218))]  # fmt: skip
WEIGHTS, TOKENS = 3 * 12 * 128 * 128, BATCH * 16  # BENCH_VIT of models/export.py
FLOPS = 400e9
RATES = "gflops: 400, bandwidth: 64GB, functions: 16G"


def read_digits(path, work):
    """Writes the four arrays; images are in [0, 1]."""
    rows = numpy.loadtxt(gzip.open(path), delimiter=",")
    rows = rows[numpy.random.default_rng(0).permutation(len(rows))]
    images, labels = (rows[:, :64] / 16).astype(numpy.float32).reshape(-1, 8, 8), rows[:, 64].astype(numpy.int64)
    n_test = len(rows) // 5
    for name, part in ("train", slice(n_test, None)), ("test", slice(n_test)):
        numpy.save(work / f"images_{name}.npy", images[part])
        numpy.save(work / f"labels_{name}.npy", labels[part])


def write_cluster(path, n):
    devices = "".join(f"  - {{name: d{i}, threads: 1, {RATES}}}\n" for i in range(n))
    path.write_text(f"clock: modelled\ndevices:\n{devices}")


def train(options, seed, slow, policy, work):
    """(milliseconds a step, accuracy, busy and communicating milliseconds of a step in which nobody is slow)"""
    cluster, out = work / f"{len(slow)}.yaml", work / "run"
    command = [options.motley, "train", options.dir / f"vit{seed}/model.onnx", "--dim", f"batch={BATCH}", "-c", cluster, "-q",
               "--data", f"npy:images={work}/images_train.npy,labels={work}/labels_train.npy",
               "--loss", "cross_entropy:logits:labels,smoothing=0.1", "--steps", str(options.steps), "--seed", str(seed),
               "--optimizer", "adamw:lr=3e-3,wd=0.05,clip=1.0,schedule=cosine,warmup=20", "--out", out, *policy]  # fmt: skip
    for choice in COLUMNS_AND_ROWS:
        command += ["--fix", choice]
    for i, k in enumerate(slow):
        if k > 1:
            command += ["--slow", f"{START}:d{i}={k}"]
    subprocess.run(["rm", "-rf", out], check=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    steps = [json.loads(line) for line in open(out / "steps.jsonl")]
    steps = [step["ranks"][0] | {"all": step["ranks"]} for step in steps if "ranks" in step]
    times = [r["busy_ms"] + r["comm_ms"] + r["wait_ms"] for r in steps[options.steps // 2 :]]
    calm = [rank for step in steps[2:START] for rank in step["all"]]
    busy, comm = (statistics.median(rank[key] for rank in calm) for key in ("busy_ms", "comm_ms"))
    return statistics.median(times), measure(options, out, work), busy, comm


def measure(options, out, work):
    labels = numpy.load(work / "labels_test.npy")
    subprocess.run([options.motley, "run", out / "model.onnx", "--dim", f"batch={len(labels)}", "--input",
                    f"images={work}/images_test.npy", "--output", f"logits={work}/logits.npy"],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    return float((numpy.load(work / "logits.npy").argmax(1) == labels).mean())


def products_ms(n):
    """Of a step, in the products of the layers that are split, on one of n devices: 6 FLOPs a weight and token."""
    return 1e3 * 6 * WEIGHTS * TOKENS / n / FLOPS


def lent_until_equal(slow, m, o):
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


def predict(name, slow, m, o):
    steps = [k * (m + o) for k in slow]
    mean = statistics.mean(steps)
    zero = max(max(min(step, mean), k * (m * 0.25 + o)) if step > mean else step for k, step in zip(slow, steps))
    return {"nothing": max(steps), "zero": zero, "migrate": lent_until_equal(slow, m, o),
            "shares": len(slow) * (m + o) / sum(1 / k for k in slow)}[name.split(",")[0]]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("motley")
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("digits")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--policies", default=";".join(POLICIES), help="of these, split at ;")
    parser.add_argument("--scenes", default=",".join(SCENES))
    options = parser.parse_args()
    seeds = options.seeds.split(",")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        read_digits(options.digits, work)
        for n in 4, 8:
            write_cluster(work / f"{n}.yaml", n)
        print(f"{'slow':8} {'policy':15} {'step, ms':>9} {'model':>7}   accuracy (range over {len(seeds)} seeds)")
        for scene in options.scenes.split(","):
            slow = SCENES[scene]
            m = products_ms(len(slow))
            for name in options.policies.split(";"):
                runs = [train(options, seed, slow, POLICIES[name], work) for seed in seeds]
                step, told = statistics.median(r[0] for r in runs), [r[1] for r in runs]
                model = predict(name, slow, m, runs[0][2] - m) + runs[0][3]
                print(f"{scene:8} {name:15} {step:9.2f} {model:7.2f}   {statistics.mean(told):.3f} "
                      f"({min(told):.3f}-{max(told):.3f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
