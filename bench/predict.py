"""What the planner predicts for a step against what a step takes, with the rates that `motley probe` measures just before.

    predict.py MOTLEY DIR [--rounds 3] [NAME...]

DIR is what `models/export.py --bench DIR` wrote. On one device and on the emulated ones of models/clusters/four.yaml. A line a
round: the prediction, the median step, and predicted / measured. For emulated devices also the last step on their own clocks
(busy, communicating and waiting, of the rank that took longest), which other work on the machine disturbs little.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

FOUR = pathlib.Path(__file__).resolve().parent.parent / "models/clusters/four.yaml"
OPTIMIZER = "adamw:lr=3e-4,betas=0.9/0.95,eps=1e-8,wd=0.1"


def ask(*command):
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def compare(motley, folder, cluster):
    source = "input_ids" if (folder / "input_ids.npy").exists() else "x"
    common = [folder / "model.onnx", "-c", cluster, "--optimizer", OPTIMIZER, "--json"]
    plan = ask(motley, "plan", *common, "--loss", "cross_entropy:logits:labels")
    bench = ask(motley, "bench", *common, "--steps", "10", "--warmup", "2",
                "--input", f"{source}={folder / source}.npy",
                "--loss", f"cross_entropy:logits:{folder / 'labels.npy'}")  # fmt: skip
    predicted, measured = 1e3 * plan["step_s"], bench["ms"]
    clock = max(rank["busy_ms"] + rank["comm_ms"] + rank["wait_ms"] for rank in bench["ranks"])
    return predicted, measured, clock


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("motley")
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=["mlp", "gpt"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        one, four = f"{work}/one.yaml", f"{work}/four.yaml"
        for number in range(args.rounds):
            subprocess.run([args.motley, "probe", "-o", one], check=True)
            subprocess.run([args.motley, "probe", "-c", FOUR, "-o", four], check=True)
            for name in args.names:
                for what, cluster in ("one", one), ("four", four):
                    predicted, measured, clock = compare(args.motley, args.dir / name, cluster)
                    own = f", clocks {clock:.1f} ms: {predicted / clock:.2f}" if what == "four" else ""
                    print(f"{name} on {what}, round {number + 1}: predicted {predicted:.1f} ms, "
                          f"measured {measured:.1f} ms: {predicted / measured:.2f}{own}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
