"""What ZERO-resizing computes, by its formulas, in PyTorch: fixtures for tests/prop/test_cuts.c.

Two ranks of equal shares train the MLP for four steps; from the second on they leave columns out. The first layer's weight is
split by rows, the second's by columns. Each rank gathers its kept columns, multiplies, and scatters the gradients (arXiv
2401.11469: Y = X[:, I] W[:, I]^T, dX[:, I] = G W[:, I], dW[:, I] = G^T X[:, I]); nothing here is a mask.

    python models/cuts.py        # with the environment of README.md; writes fixtures/cuts
"""

import pathlib

import numpy
import onnx
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
STEPS, FIRST_CUT = 4, 1
LR, BETAS, EPS, DECAY = 0.01, (0.9, 0.95), 1e-8, 0.3
SPLIT = {"layers.0.weight": 0, "layers.1.weight": 1}  # by rows, by columns


def rank_product(x, w, kept, fill, last):
    """One rank's part of a layer: its product, and a function from the gradient to (dX, dW)."""

    def backward(g):
        dx, dw = torch.zeros_like(x), torch.zeros_like(w)
        dx[:, kept] = g @ w[:, kept]
        dw[:, kept] = g.T @ x[:, kept]
        gone = [c for c in range(w.shape[1]) if c not in kept]
        if fill == "mean" and gone:
            dw[:, gone] = dw[:, kept].mean(1, keepdim=True)
        if fill == "last" and gone:
            dw[:, gone] = last[:, gone]
        return dx, dw

    return x[:, kept] @ w[:, kept].T, backward


def layer(x, name, params, lists, fill, last):
    """All ranks' parts of a layer, put together as tensor parallelism does."""
    w = params[name]
    half = w.shape[SPLIT[name]] // 2
    parts = []
    for rank in range(2):
        own = slice(rank * half, (rank + 1) * half)
        of_rows = SPLIT[name] == 0
        part = (own, slice(None)) if of_rows else (slice(None), own)
        y, back = rank_product(x if of_rows else x[:, own], w[part], lists[name][rank], fill, last[name][part])
        parts.append((part, own, of_rows, y, back))
    y = torch.cat([p[3] for p in parts], 1) if SPLIT[name] == 0 else parts[0][3] + parts[1][3]

    def backward(g):
        dx, dw = torch.zeros_like(x), torch.zeros_like(w)
        for part, own, of_rows, _, back in parts:
            dx_part, dw[part] = back(g[:, own] if of_rows else g)
            if of_rows:
                dx += dx_part
            else:
                dx[:, own] = dx_part
        return dx, dw

    return y, backward


def gradients(params, x, labels, lists, fill, last):
    p = params
    y0, back0 = layer(x, "layers.0.weight", p, lists, fill, last)
    h0 = torch.relu(y0 + p["layers.0.bias"])
    y1, back1 = layer(h0, "layers.1.weight", p, lists, fill, last)
    h1 = torch.relu(y1 + p["layers.1.bias"]).requires_grad_()
    head = {k: p[k].clone().requires_grad_() for k in ("layers.2.weight", "layers.2.bias")}
    loss = F.cross_entropy(h1 @ head["layers.2.weight"].T + head["layers.2.bias"], labels, ignore_index=-100)
    loss.backward()
    grads = {k: v.grad for k, v in head.items()}
    g1 = h1.grad * (h1.detach() > 0)
    grads["layers.1.bias"] = g1.sum(0)
    g0, grads["layers.1.weight"] = back1(g1)
    g0 = g0 * (h0 > 0)
    grads["layers.0.bias"] = g0.sum(0)
    _, grads["layers.0.weight"] = back0(g0)
    return loss.item(), grads


def decay_of(name, lists, params):
    """Columns that their rank left out do not decay."""
    decay = torch.full_like(params[name], DECAY)
    if name in SPLIT:
        half = params[name].shape[SPLIT[name]] // 2
        for rank in range(2):
            own = slice(rank * half, (rank + 1) * half)
            part = decay[own] if SPLIT[name] == 0 else decay[:, own]
            gone = [c for c in range(part.shape[1]) if c not in lists[name][rank]]
            part[:, gone] = 0
    return decay


def train(params, x, labels, lists, fill):
    params = {k: v.clone() for k, v in params.items()}
    state = {f"{k}/{s}": torch.zeros_like(v) for k, v in params.items() for s in ("exp_avg", "exp_avg_sq")}
    last = {k: torch.zeros_like(params[k]) for k in SPLIT}
    whole = {k: [list(range(params[k].shape[1] // (1 + SPLIT[k])))] * 2 for k in SPLIT}
    losses = []
    for step in range(1, STEPS + 1):
        now = lists if step > FIRST_CUT else whole
        loss, grads = gradients(params, x, labels, now, fill, last)
        losses.append(loss)
        last = {k: grads[k] for k in SPLIT}
        for k, g in grads.items():
            m, v = state[f"{k}/exp_avg"], state[f"{k}/exp_avg_sq"]
            m.mul_(BETAS[0]).add_(g, alpha=1 - BETAS[0])
            v.mul_(BETAS[1]).add_(g * g, alpha=1 - BETAS[1])
            params[k].mul_(1 - LR * decay_of(k, now, params))
            root = (v / (1 - BETAS[1] ** step)).sqrt() + EPS
            params[k].sub_(LR / (1 - BETAS[0] ** step) * m / root)
    return losses, {**params, **state}


def main():
    out = HERE / "fixtures" / "cuts"
    out.mkdir(exist_ok=True)
    model = onnx.load(HERE / "mlp_dynamo20_opt_static.onnx")
    params = {t.name: torch.tensor(onnx.numpy_helper.to_array(t), dtype=torch.float64) for t in model.graph.initializer}
    x = torch.tensor(numpy.load(HERE / "fixtures/mlp/x.npy"), dtype=torch.float64)
    labels = torch.tensor(numpy.load(HERE / "fixtures/mlp/labels.npy"))
    labels[[i for i in range(len(labels) // 2) if i % 3 != 1]] = -100  # as tests/plan_run.h
    random = numpy.random.default_rng(1)
    lists = {k: [sorted(random.permutation(n)[: n - n // 3]) for _ in range(2)] for k, n in (("layers.0.weight", 20), ("layers.1.weight", 16))}
    for k, kept in lists.items():
        numpy.save(out / f"kept.{k}.npy", numpy.array(kept, dtype=numpy.int64))
    for fill in ("zero", "mean", "last"):
        losses, after = train(params, x, labels, lists, fill)
        numpy.save(out / f"losses.{fill}.npy", numpy.array(losses))
        numpy.save(out / f"after.{fill}.npy", numpy.concatenate([after[k].numpy().ravel() for k in sorted(after)]))


if __name__ == "__main__":
    main()
