"""What PyTorch computes for a network on one batch: the fixtures that Motley is held against.

Everything is computed in float64 (the reference) and in float32 (what rounding does to PyTorch
itself) from the same float32 parameters and inputs.
"""

import copy
import json
import math

import numpy
import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "f64": torch.float64}
STEPS = 20
WARMUP = 5

# Motley's spelling of the optimizers whose losses are recorded.
OPTIMIZERS = [
    "sgd:lr=0.1",
    "sgd:lr=0.05,momentum=0.9",
    "adam:lr=0.003,betas=0.9/0.999,eps=1e-8",
    "adamw:lr=0.003,betas=0.9/0.95,eps=1e-8,wd=0.1",
    "adamw:lr=0.003,betas=0.9/0.95,eps=1e-8,wd=0.1,clip=1.0",
    f"adamw:lr=0.003,betas=0.9/0.95,eps=1e-8,wd=0.1,schedule=cosine,warmup={WARMUP}",
]


def loss_of(kind, output, labels):
    """Mean over elements (mse) or over all positions (cross_entropy, classes last), the latter
    perhaps smoothed: `cross_entropy,smoothing=0.1`."""
    kind, _, smoothing = kind.partition(",smoothing=")
    if kind == "mse":
        return F.mse_loss(output, labels)
    return F.cross_entropy(
        output.flatten(0, -2), labels.flatten(), label_smoothing=float(smoothing or 0)
    )


def cast(value, dtype):
    return value.to(dtype) if value.is_floating_point() else value


def parse_optimizer(text):
    kind, _, options = text.partition(":")
    return kind, dict(option.split("=") for option in options.split(","))


def make_optimizer(text, parameters):
    kind, options = parse_optimizer(text)
    lr, wd = float(options["lr"]), float(options.get("wd", 0))
    if kind == "sgd":
        momentum = float(options.get("momentum", 0))
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=wd)
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    betas = tuple(float(beta) for beta in options["betas"].split("/"))
    return make(parameters, lr=lr, betas=betas, eps=float(options["eps"]), weight_decay=wd)


def lr_factor(text, step, steps):
    """Factor on the rate of step 0 <= step < steps: linear from 1/warmup to 1, then cosine to 0.

    Steps up to `warmup` climb, (step + 1) / warmup; step `warmup` is the first of the cosine and
    has the full rate; step `steps`, which is not taken, would have 0.
    """
    _, options = parse_optimizer(text)
    if "schedule" not in options:
        return 1.0
    warmup = int(options["warmup"])
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def backward(model, kind, inputs, labels, dtype):
    """Output, loss and gradients by parameter name, as numpy arrays of `dtype`."""
    model = copy.deepcopy(model).to(dtype)
    output = model(*(cast(x, dtype) for x in inputs.values()))
    loss = loss_of(kind, output, cast(labels, dtype))
    loss.backward()
    grads = {name: p.grad.numpy() for name, p in model.named_parameters()}
    return output.detach().numpy(), loss.item(), grads


def curve(model, kind, inputs, labels, dtype, optimizer_text, steps=STEPS):
    """Losses before each of the steps, the batch repeated."""
    model = copy.deepcopy(model).to(dtype)
    inputs, labels = [cast(x, dtype) for x in inputs.values()], cast(labels, dtype)
    optimizer = make_optimizer(optimizer_text, list(model.parameters()))
    full_lr = optimizer.param_groups[0]["lr"]
    clip = float(parse_optimizer(optimizer_text)[1].get("clip", math.inf))
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = full_lr * lr_factor(optimizer_text, step, steps)
        optimizer.zero_grad()
        loss = loss_of(kind, model(*inputs), labels)
        loss.backward()
        if clip < math.inf:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def curves(model, kind, inputs, labels):
    """Losses by optimizer and dtype."""
    return {
        text: {
            suffix: curve(model, kind, inputs, labels, dtype, text)
            for suffix, dtype in DTYPES.items()
        }
        for text in OPTIMIZERS
    }


def global_norm(grads):
    return math.sqrt(sum(float(numpy.square(g, dtype=numpy.float64).sum()) for g in grads.values()))


def save(folder, name, value):
    numpy.save(folder / f"{name}.npy", numpy.ascontiguousarray(value))


def write(folder, arch, model, untied, inputs, labels):
    """Writes the fixture of one architecture.

    `untied` is None, or the same network with the head a parameter of its own: its gradients are
    those of the token table by use, and their sum is the tied one.
    """
    (folder / "grads").mkdir(parents=True, exist_ok=True)
    for name, value in inputs.items():
        save(folder, name, value.numpy())
    save(folder, "labels", labels.numpy())
    kind = arch.loss
    name, comma, options = kind.partition(",")
    loss = f"{name}:{arch.output}:labels{comma}{options}"
    record = {"input": arch.input, "output": arch.output, "loss": loss}
    record |= {"value": {}, "grad_norm": {}}
    for suffix, dtype in DTYPES.items():
        output, loss, grads = backward(model, kind, inputs, labels, dtype)
        save(folder, f"{arch.output}.{suffix}", output)
        record["value"][suffix] = loss
        record["grad_norm"][suffix] = global_norm(grads)
        if untied is not None:
            _, _, parts = backward(untied, kind, inputs, labels, dtype)
            grads["wte.weight.embedding"] = parts["wte.weight"]
            grads["wte.weight.head"] = parts["lm_head.weight"]
        for name, grad in grads.items():
            save(folder / "grads", f"{name}.{suffix}", grad)
    record["curves"] = curves(model, kind, inputs, labels)
    if untied is not None:
        record["curves_untied"] = curves(untied, kind, inputs, labels)
    (folder / "loss.json").write_text(json.dumps(record, indent=1) + "\n")
    return record
