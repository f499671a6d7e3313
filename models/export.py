"""Writes the small ONNX models of this folder and the PyTorch fixtures they are tested against.

    export.py [--only GLOB]     FOLDER/*.onnx, FOLDER/fixtures/, FOLDER/meta.json
    export.py --bench DIR       the benchmark GPT (10.7M parameters), MLP and ViT, each with a batch and losses

Every export is checked here: by onnx.checker, by ONNX Runtime against PyTorch's output, and by
finding each parameter of the network among the file's initializers. README.md says what lies
where.
"""

import argparse
import fnmatch
import json
import logging
import pathlib
import platform
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy
import onnx
import onnxruntime
import onnxscript
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import nn

import nets
import reference

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20240607
LOGIT_TOLERANCE = 1e-5
# No two sizes that could be confused are equal, but batch and heads, which both suit 5/3/0/0.
GPT = nets.GptConfig(layers=2, dim=40, heads=8, seq=16, vocab=65)
GPT_BATCH = 8
VIT = nets.VitConfig(layers=2, dim=32, heads=4, image=8, patch=2, classes=10)
VIT_BATCH = 12
CHAR = nets.GptConfig(layers=3, dim=64, heads=8, seq=64, vocab=96)
CHAR_BATCH = 30
# Heads, columns and tokens in sevenths and thirteenths, within 3 %: what devices of speeds 2:2:2:1 and 4:4:4:1 get.
FINE = nets.GptConfig(layers=1, dim=70, heads=35, seq=16, vocab=65)
FINE_BATCH = 28
BENCH = nets.GptConfig(layers=6, dim=384, heads=6, seq=256, vocab=65, bias=False)
BENCH_MIDDLE = nets.GptConfig(layers=4, dim=128, heads=4, seq=128, vocab=65, bias=False)
BENCH_VIT = nets.VitConfig(layers=3, dim=128, heads=16, image=8, patch=2, classes=10)
BENCH_VIT_BATCH = 64
BENCH_OPTIMIZER = "adamw:lr=0.0003,betas=0.9/0.95,eps=1e-8,wd=0.1"


@dataclass(frozen=True)
class Arch:
    """A network with a batch and a loss. `build(variant)` makes the module; a variant is a way to
    write the same function."""

    build: Callable[[str], nn.Module]
    batch: Callable[[], tuple]
    input: str = "x"
    output: str = "logits"
    loss: str = "cross_entropy"

    def load(self, variant="sdpa"):
        """Module, inputs by name, labels: the same values at every call and for every variant."""
        torch.manual_seed(SEED)
        model = self.build(variant).eval()
        nets.init_distinct(model)
        torch.manual_seed(SEED + 1)
        x, labels = self.batch()
        return model, {self.input: x}, labels

    def load_untied(self):
        """The same network with a head of its own, or None where nothing is tied."""
        model, _, _ = self.load()
        if not isinstance(model, nets.Gpt):
            return None
        untied = nets.Gpt(model.config, tied=False)
        untied.load_state_dict(model.state_dict())
        return untied


@dataclass(frozen=True)
class Export:
    """A way to write an architecture as ONNX. `optimize` is the dynamo exporter's optimizer, or
    the TorchScript exporter's constant folding."""

    arch: str
    exporter: str  # "ts" or "dynamo"
    opset: int
    optimize: bool
    dynamic: bool
    variant: str = ""

    @property
    def name(self):
        parts = [self.arch, self.variant, f"{self.exporter}{self.opset}"]
        parts += ["opt" if self.optimize else "raw", "dynamic" if self.dynamic else "static"]
        return "_".join(part for part in parts if part)


def tokens(batch, config):
    ids = torch.randint(config.vocab, (batch, config.seq + 1))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def gpt(gelu):
    return Arch(
        build=lambda attention: nets.Gpt(replace(GPT, gelu=gelu, attention=attention)),
        batch=lambda: tokens(GPT_BATCH, GPT),
        input="input_ids",
    )


ARCHS = {
    "mlp": Arch(
        build=lambda _: nets.Mlp([20, 32, 24, 10], F.relu),
        batch=lambda: (torch.randn(16, 20), torch.randint(10, (16,))),
    ),
    "mlp_mse": Arch(
        build=lambda _: nets.Mlp([12, 32, 6], torch.tanh),
        batch=lambda: (torch.randn(16, 12), torch.randn(16, 6)),
        output="y",
        loss="mse",
    ),
    "gpt_erf": gpt("none"),
    "gpt_tanh": gpt("tanh"),
    "vit": Arch(
        build=lambda attention: nets.Vit(replace(VIT, attention=attention)),
        batch=lambda: (torch.rand(VIT_BATCH, 8, 8), torch.randint(10, (VIT_BATCH,))),
        input="images",
        loss="cross_entropy,smoothing=0.1",
    ),
}

# For GPT every pair of values of two factors occurs with the dynamo exporter. The TorchScript
# exporter writes fused attention from opset 14 on.
EXPORTS = [
    Export("mlp", "ts", 13, True, True),
    Export("mlp", "ts", 17, False, False),
    Export("mlp", "dynamo", 18, False, True),
    Export("mlp", "dynamo", 20, True, False),
    Export("mlp_mse", "ts", 17, True, True),
    Export("mlp_mse", "dynamo", 18, False, False),
    Export("gpt_erf", "ts", 13, True, False, "manual"),
    Export("gpt_tanh", "ts", 13, True, True, "manual"),
    Export("gpt_erf", "ts", 13, False, True, "manual"),
    Export("gpt_tanh", "ts", 17, False, False, "manual"),
    Export("gpt_erf", "ts", 17, True, True, "sdpa"),
    Export("gpt_tanh", "ts", 17, True, False, "sdpa"),
    Export("gpt_erf", "dynamo", 18, False, False, "manual"),
    Export("gpt_tanh", "dynamo", 18, True, True, "manual"),
    Export("gpt_erf", "dynamo", 18, False, True, "sdpa"),
    Export("gpt_tanh", "dynamo", 18, True, False, "sdpa"),
    Export("gpt_erf", "dynamo", 20, True, False, "manual"),
    Export("gpt_tanh", "dynamo", 20, False, True, "manual"),
    Export("gpt_erf", "dynamo", 20, True, True, "sdpa"),
    Export("gpt_tanh", "dynamo", 20, False, False, "sdpa"),
    Export("vit", "ts", 17, True, True, "manual"),
    Export("vit", "dynamo", 18, False, True, "sdpa"),
    Export("vit", "dynamo", 20, True, False, "sdpa"),
]


def clean(path):
    """Removes what says where the file was made: source lines, stack traces, paths."""
    proto = onnx.load(path)
    functions = [node for function in proto.functions for node in function.node]
    for node in [*proto.graph.node, *functions]:
        kept = [p for p in node.metadata_props if "stack_trace" not in p.key]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.ClearField("doc_string")
    onnx.save(proto, path)
    if str(HERE.parent) in (text := path.read_bytes().decode("latin1")) or ".py" in text:
        raise ValueError(f"{path.name} names a source file")


def write_onnx(model, inputs, output, path, export):
    """Exports `model` to `path`, all weights inside the file."""
    args = tuple(inputs.values())
    options = {"input_names": list(inputs), "output_names": [output]}
    options |= {"opset_version": export.opset, "external_data": False}
    if export.exporter == "dynamo":
        if export.dynamic:
            options["dynamic_shapes"] = [{0: torch.export.Dim("batch")} for _ in args]
        torch.onnx.export(
            model, args, path, dynamo=True, optimize=export.optimize, verbose=False, **options
        )
    else:
        if export.dynamic:
            options["dynamic_axes"] = {name: {0: "batch"} for name in [*inputs, output]}
        torch.onnx.export(
            model, args, path, dynamo=False, do_constant_folding=export.optimize, **options
        )
    clean(path)


def match(value, candidates):
    """(name, transform) of the candidate that `value` is, perhaps transposed or reshaped."""
    for name, candidate in candidates.items():
        if numpy.array_equal(value, candidate):
            return name, "none"
        if candidate.ndim == 2 and numpy.array_equal(value, candidate.T):
            return name, "transpose"
    for name, candidate in candidates.items():
        if value.size == candidate.size and numpy.array_equal(value.ravel(), candidate.ravel()):
            return name, "reshape"
    return None, None


def map_initializers(model, proto):
    """Says which parameter each float initializer of the file is, by comparing values.

    `trained`: initializer -> its gradient's file stem under grads/, and how to turn that gradient
    into the initializer's shape. `frozen`: the other float ones, with the reason. `tie`: pairs of
    initializers that are one parameter.
    """
    parameters = {name: p.detach().numpy() for name, p in model.named_parameters()}
    buffers = {name: b.numpy() for name, b in model.named_buffers()}
    trained, frozen = {}, {}
    for tensor in proto.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype != numpy.float32:
            continue
        parameter, transform = match(value, parameters)
        buffer, _ = match(value, buffers)
        if parameter:
            entry = {"param": parameter, "grad": parameter, "transform": transform}
            trained[tensor.name] = entry | {"shape": list(value.shape)}
        elif buffer:
            frozen[tensor.name] = f"buffer {buffer}"
        elif value.size == 1:
            frozen[tensor.name] = f"scalar {value.item():.9g}"
        else:
            frozen[tensor.name] = f"constant of {', '.join(map(str, numpy.unique(value)[:4]))}"
    lost = set(parameters) - {entry["param"] for entry in trained.values()}
    if lost:
        raise ValueError(f"parameters are missing from the file: {sorted(lost)}")
    return {"trained": trained, "frozen": frozen, "tie": split_ties(trained, proto)}


def split_ties(trained, proto):
    """Where one parameter became two initializers, gives each the gradient of its own use."""
    by_parameter = {}
    for name, entry in trained.items():
        by_parameter.setdefault(entry["param"], []).append(name)
    pairs = [names for names in by_parameter.values() if len(names) > 1]
    tables = {node.input[0] for node in proto.graph.node if node.op_type == "Gather"}
    for names in pairs:
        uses = {name: "embedding" if name in tables else "head" for name in names}
        if sorted(uses.values()) != ["embedding", "head"]:
            raise ValueError(f"initializers {names} are one parameter, but not table and head")
        for name, use in uses.items():
            trained[name]["grad"] += f".{use}"
    return pairs


def check_output(path, model, inputs):
    """Largest difference between ONNX Runtime's output and PyTorch's, which must be small."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {name: x.numpy() for name, x in inputs.items()})
    with torch.no_grad():
        expected = model(*inputs.values()).numpy()
    error = float(numpy.abs(output - expected).max())
    if not error <= LOGIT_TOLERANCE:
        raise ValueError(f"{path.name}: output differs from PyTorch's by {error}")
    return error


def describe(path, model, inputs):
    """Checks a written file and returns its row of meta.json."""
    onnx.checker.check_model(str(path), full_check=True)
    proto = onnx.load(path)
    domains = {o.domain or "ai.onnx": o.version for o in proto.opset_import}
    return {
        "bytes": path.stat().st_size,
        "ir_version": proto.ir_version,
        "opset_import": domains,
        "output_error": check_output(path, model, inputs),
        "operators": dict(Counter(node.op_type for node in proto.graph.node).most_common()),
    }


def export_one(export):
    arch = ARCHS[export.arch]
    model, inputs, _ = arch.load(export.variant)
    path = HERE / f"{export.name}.onnx"
    write_onnx(model, inputs, arch.output, path, export)
    row = {"arch": export.arch, "exporter": export.exporter, "opset": export.opset}
    row |= {"optimize": export.optimize, "dynamic_batch": export.dynamic}
    if export.variant:
        row["attention"] = export.variant
    row |= describe(path, model, inputs)
    maps = HERE / "fixtures" / export.arch / "maps"
    maps.mkdir(parents=True, exist_ok=True)
    mapping = map_initializers(model, onnx.load(path))
    (maps / f"{export.name}.json").write_text(json.dumps(mapping, indent=1) + "\n")
    return row


def load_char():
    """The character model of the quick start, at GPT-2's initialisation, and a batch to trace."""
    torch.manual_seed(SEED)
    model = nets.Gpt(CHAR).eval()
    nets.init_gpt2(model)
    return model, {"input_ids": tokens(CHAR_BATCH, CHAR)[0]}


def export_char():
    """Its parameters start equal (ones, zeros), so no exporter that merges equal ones will do."""
    model, inputs = load_char()
    path = HERE / "gpt_char.onnx"
    write_onnx(model, inputs, "logits", path, Export("gpt_char", "dynamo", 18, False, False))
    row = {"arch": "gpt_char", "exporter": "dynamo", "opset": 18, "optimize": False}
    return row | {"dynamic_batch": False, "attention": "sdpa"} | describe(path, model, inputs)


def export_fine():
    """For tests of shares that follow speeds: its dims can be split finely."""
    torch.manual_seed(SEED)
    model = nets.Gpt(FINE).eval()
    nets.init_distinct(model)
    inputs = {"input_ids": tokens(FINE_BATCH, FINE)[0]}
    path = HERE / "shares" / "gpt_fine.onnx"
    path.parent.mkdir(exist_ok=True)
    write_onnx(model, inputs, "logits", path, Export("gpt_fine", "ts", 17, True, True))
    row = {"arch": "gpt_fine", "exporter": "ts", "opset": 17, "optimize": True}
    return row | {"dynamic_batch": True, "attention": "sdpa"} | describe(path, model, inputs)


def bench_gpt(config, batch):
    """At GPT-2's initialisation: model, inputs, labels."""
    model = nets.Gpt(config).eval()
    nets.init_gpt2(model)
    ids, labels = tokens(batch, config)
    return model, {"input_ids": ids}, labels


def bench_mlp():
    """Three layers on 256 samples: model, inputs, labels."""
    model = nets.Mlp((784, 1024, 1024, 10), F.relu).eval()
    return model, {"x": torch.randn(256, 784)}, torch.randint(10, (256,))


def bench_vit(seed):
    """A transformer over images of digits: model, inputs, labels."""
    torch.manual_seed(seed)
    images = torch.rand(BENCH_VIT_BATCH, 8, 8)
    return nets.Vit(BENCH_VIT).eval(), {"images": images}, torch.randint(10, (BENCH_VIT_BATCH,))


BENCH_MODELS = {
    "gpt": lambda: bench_gpt(BENCH, 4),  # nanoGPT without biases
    "gpt30": lambda: bench_gpt(BENCH, 30),
    "gpt4": lambda: bench_gpt(BENCH_MIDDLE, 8),
    "char32": lambda: bench_gpt(CHAR, 32),  # gpt_char.onnx for four replicas
    "mlp": bench_mlp,
    "vit1": lambda: bench_vit(1),
    "vit2": lambda: bench_vit(2),
    "vit3": lambda: bench_vit(3),
}


def load_bench(name):
    """The same model and batch at every call."""
    torch.manual_seed(SEED)
    return BENCH_MODELS[name]()


def export_bench(folder, name):
    """Writes a benchmark model; `folder` should lie outside the repository."""
    folder.mkdir(parents=True, exist_ok=True)
    model, inputs, labels = load_bench(name)
    path = folder / "model.onnx"
    is_dynamic = name.startswith("vit")  # to be tested on another number of images
    write_onnx(model, inputs, "logits", path, Export(name, "dynamo", 18, False, is_dynamic))
    for key, value in (inputs | {"labels": labels}).items():
        reference.save(folder, key, value.numpy())
    meta = {"loss": "cross_entropy:logits:labels", "optimizer": BENCH_OPTIMIZER}
    meta["losses"] = reference.curve(
        model, "cross_entropy", inputs, labels, torch.float32, BENCH_OPTIMIZER
    )
    meta |= describe(path, model, inputs) | {"versions": versions()}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    first, last = meta["losses"][0], meta["losses"][-1]
    print(f"{path}: {meta['bytes']} bytes, loss {first:.4f} -> {last:.4f}")


def versions():
    modules = (torch, onnx, onnxscript, onnxruntime, numpy)
    found = {module.__name__: module.__version__ for module in modules}
    return {"python": platform.python_version()} | found


def export_all(glob):
    """Fixtures of all architectures, and the exports whose name fits `glob`."""
    for name, arch in ARCHS.items():
        model, inputs, labels = arch.load()
        folder = HERE / "fixtures" / name
        record = reference.write(folder, arch, model, arch.load_untied(), inputs, labels)
        print(f"{name:40} loss {record['value']['f64']:.4f}  norm {record['grad_norm']['f64']:.3f}")
    rows = {}
    for export in EXPORTS:
        if fnmatch.fnmatch(export.name, glob):
            rows[export.name] = export_one(export)
    for name, write in {"gpt_char": export_char, "gpt_fine": export_fine}.items():
        if fnmatch.fnmatch(name, glob):
            rows[name] = write()
    for name, row in rows.items():
        print(
            f"{name:40} {row['bytes']:8} bytes  {sum(row['operators'].values()):4} nodes"
            f"  error {row['output_error']:.1e}"
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="GLOB", help="exports to write")
    parser.add_argument("--bench", type=pathlib.Path, metavar="DIR", help="write the large models")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(3)
    torch.set_num_threads(1)
    if options.bench:
        for name in fnmatch.filter(BENCH_MODELS, options.only):
            export_bench(options.bench / name, name)
        return
    rows = export_all(options.only)
    if options.only == "*":
        meta = {"seed": SEED, "versions": versions(), "exports": rows}
        (HERE / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


if __name__ == "__main__":
    main()
