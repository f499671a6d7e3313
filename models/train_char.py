"""Trains the network of gpt_char.onnx in PyTorch: what the quick start should reach.

    train_char.py TEXT [--steps N] [--optimizer OPT] [--threads N]

Prints a JSON line every 100 steps and one at the end, with the loss on the last tenth of the text
and that of the baseline, a bigram model of the training part with one added to every count.
Losses are in nats a character. Data as Motley's `--data text:FILE`: windows of T + 1 characters at
stride T, labels shifted by one, a seeded permutation an epoch.
"""

import argparse
import json
import math
import pathlib
import time

import numpy
import torch

import export
import reference

OPTIMIZER = "adamw:lr=0.003,betas=0.9/0.95,eps=1e-8,wd=0.1,clip=1.0,schedule=cosine,warmup=50"
EVALUATION_BATCH = 256


def encode(text, vocab):
    """(training ids, validation ids, characters); ids count the training part's code points."""
    cut = len(text) - len(text) // 10
    characters = sorted(set(text[:cut]))
    if len(characters) > vocab:
        raise SystemExit(f"the text has {len(characters)} characters, the model {vocab}")
    if unknown := set(text[cut:]) - set(characters):
        raise SystemExit(f"only the validation part has {sorted(unknown)}")
    index = {character: i for i, character in enumerate(characters)}
    ids = numpy.array([index[character] for character in text])
    return ids[:cut], ids[cut:], len(characters)


def bigram_loss(train, validation, characters):
    """Mean -log p(next | previous), p from counts plus one."""
    counts = numpy.ones((characters, characters))
    numpy.add.at(counts, (train[:-1], train[1:]), 1)
    log_p = numpy.log(counts / counts.sum(axis=1, keepdims=True))
    return float(-log_p[validation[:-1], validation[1:]].mean())


def windows(ids, seq):
    """(number, T + 1) windows at stride T; the tail is dropped."""
    count = (len(ids) - 1) // seq
    starts = numpy.arange(count) * seq
    return torch.from_numpy(ids[starts[:, None] + numpy.arange(seq + 1)])


def batches(data, batch, seed):
    """Endless batches (inputs, labels)."""
    epoch = 0
    while True:
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed + epoch))
        for first in range(0, len(data) - batch + 1, batch):
            chosen = data[order[first : first + batch]]
            yield chosen[:, :-1], chosen[:, 1:]
        epoch += 1


@torch.no_grad()
def evaluate(model, data):
    total = 0.0
    for part in data.split(EVALUATION_BATCH):
        loss = reference.loss_of("cross_entropy", model(part[:, :-1]), part[:, 1:])
        total += loss.item() * len(part)
    return total / len(data)


def train(model, data, optimizer_text, steps, report):
    optimizer = reference.make_optimizer(optimizer_text, list(model.parameters()))
    full_lr = optimizer.param_groups[0]["lr"]
    clip = float(reference.parse_optimizer(optimizer_text)[1].get("clip", math.inf))
    source = batches(data, export.CHAR_BATCH, export.SEED)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = full_lr * reference.lr_factor(optimizer_text, step, steps)
        inputs, labels = next(source)
        optimizer.zero_grad()
        loss = reference.loss_of("cross_entropy", model(inputs), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        report(step + 1, loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--optimizer", default=OPTIMIZER)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    text = options.text.read_text(encoding="utf-8")
    train_ids, validation_ids, characters = encode(text, export.CHAR.vocab)
    model, _ = export.load_char()
    validation = windows(validation_ids, export.CHAR.seq)
    start = time.monotonic()

    def report(step, loss):
        if step % 100 == 0:
            row = {"step": step, "loss": round(loss.item(), 4)}
            row["validation"] = round(evaluate(model, validation[::10]), 4)
            print(json.dumps(row | {"seconds": round(time.monotonic() - start, 1)}), flush=True)

    train(model, windows(train_ids, export.CHAR.seq), options.optimizer, options.steps, report)
    bigram = bigram_loss(train_ids, validation_ids, characters)
    reached = evaluate(model, validation)
    row = {"steps": options.steps, "batch": export.CHAR_BATCH, "characters": characters}
    row |= {"validation": round(reached, 4), "bigram": round(bigram, 4)}
    print(json.dumps(row | {"below_bigram": round(bigram - reached, 4)}))


if __name__ == "__main__":
    main()
