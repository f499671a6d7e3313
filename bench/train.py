"""A training step of Motley against PyTorch eager, in turns. One JSON line a model and thread count.

    train.py MOTLEY DIR [--threads 1 2] [--rounds 7] [NAME...]

DIR is what `models/export.py --bench DIR` wrote. In every round PyTorch takes its steps, then Motley its
own; reported are the median, least and greatest of the rounds' ratios torch / motley (above one: Motley is
faster), peak memory minus base on both sides, and how far the losses are apart.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))

OPTIMIZER = "adamw:lr=3e-4,betas=0.9/0.95,eps=1e-8,wd=0.1"


def memory_mb(field):
    with open("/proc/self/status") as file:
        return int(re.search(rf"{field}:\s+(\d+)", file.read())[1]) / 1024


def serve(pipe, name, threads):
    """PyTorch in a process of its own: answers a number of steps with their times in ms."""
    import torch
    import torch.nn.functional as F

    import export

    torch.set_num_threads(threads)
    base = memory_mb("VmRSS")
    model, inputs, labels = export.load_bench(name)
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(*inputs.values())
        loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(3)]
    pipe.send((losses, base))
    while count := pipe.recv():
        times = []
        for _ in range(count):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
        pipe.send(times)
    pipe.send(memory_mb("VmHWM"))


def run_motley(motley, folder, threads, steps):
    source = "input_ids" if (folder / "input_ids.npy").exists() else "x"
    command = [motley, "bench", folder / "model.onnx", "--input", f"{source}={folder / source}.npy"]
    command += ["--loss", f"cross_entropy:logits:{folder / 'labels.npy'}", "--optimizer", OPTIMIZER]
    command += ["--threads", str(threads), "--steps", str(steps), "--warmup", "3", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def race(motley, folder, name, threads, rounds, steps):
    context = multiprocessing.get_context("spawn")
    pipe, remote = context.Pipe()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    process = context.Process(target=serve, args=(remote, name, threads))
    process.start()
    torch_losses, torch_base = pipe.recv()
    ratios, torch_ms, motley_ms = [], [], []
    for _ in range(rounds):
        pipe.send(steps)
        torch_ms.append(statistics.median(pipe.recv()))
        report = run_motley(motley, folder, threads, steps)
        motley_ms.append(report["ms"])
        ratios.append(torch_ms[-1] / motley_ms[-1])
    pipe.send(0)
    torch_peak = pipe.recv()
    process.join()
    gap = max(abs(a - b) for a, b in zip(torch_losses, report["losses"]))
    return {
        "model": name,
        "threads": threads,
        "torch/motley": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "greatest": round(max(ratios), 3),
        "rounds": rounds,
        "torch_ms": round(statistics.median(torch_ms), 2),
        "motley_ms": round(statistics.median(motley_ms), 2),
        "torch_memory_mb": round(torch_peak - torch_base),
        "motley_memory_mb": round(report["peak_rss_mb"] - report["base_rss_mb"]),
        "loss_gap": gap,
        "load": os.getloadavg()[0],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("motley")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=["mlp", "gpt"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    for name in options.names:
        for threads in options.threads:
            line = race(options.motley, options.folder / name, name, threads, options.rounds, options.steps)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
