"""Writes docs/generated: a page for each op, made from the table of ops, pages of all other public names, and a page of plots.

A name that is new in a table or in an ``__all__`` appears by itself. The names of ``numba_baracuda.torch`` are there where torch is installed.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from measured import measured

import numba_baracuda as nb
from numba_baracuda.core.dtypes import BY_NAME

#: extents by the fields of descriptors: as a shape, and as a number of elements
EXTENTS = {
    "num_inputs": ("N", "N"),
    "num_segments": ("S", "S"),
    "embedding_dim": ("…", "C"),
}
SHAPES = {
    "input_shape": ("any shape", "n"),
    "output_shape": ("the same with reduced axes of extent 1, or without them", "m"),
}
LOSS_SHAPES = {
    "input_shape": ("[BT, H]", ""),
    "weight_shape": ("[V, H]", ""),
    "row_shape": ("[BT]", ""),
    "class_shape": ("[V]", ""),
    "out_shape": ("[], or [BT] for each row", ""),
}
GUIDES = {"segment": "segments.md#variants", "reduce": "reductions.md", "scan": "scans.md#how-they-run", "loss": "loss.md#memory-and-time"}
#: modules that import torch, and what else they need
TORCH = {"torch": ("torch",), "torch.scatter": ("torch",), "torch.pyg": ("torch", "torch_geometric"), "torch.hf": ("torch", "transformers")}
_SORT = "Merrill and Grimshaw, *High performance and scalable radix sorting* (2011)"
_CARRIES = "Merrill and Garland, *Merge-based parallel sparse matrix-vector multiplication* (2016), for carries between blocks"
_SOFTMAX = "Milakov and Gimelshein, *Online normalizer calculation for softmax* (2018)"
_MOMENTS = "Chan, Golub and LeVeque, *Updating formulae and a pairwise algorithm for computing sample variances* (1979)"
#: sources of methods, by words of variants and ops
SOURCES = {
    "ragged": _CARRIES,
    "permuted|pairs|ranges": _SORT,
    "scan": "Merrill and Garland, *Single-pass parallel prefix scan with decoupled look-back* (2016)",
    "var|std": _MOMENTS,
    "norm2": "Blue, *A portable Fortran program to find the Euclidean norm of a vector* (1978)",
    "logsumexp|logcumsumexp|softmax|cross_entropy": _SOFTMAX,
    "cross_entropy": "Hsu et al., *Liger Kernel: Efficient Triton Kernels for LLM Training* (2024), for losses in chunks",
}


def shape(op: Any, operand: Any) -> str:
    """The shape of an operand, in words."""
    if op.family == "segment":
        return f"[{', '.join(EXTENTS[axis][0] for axis in operand.axes)}]"
    return (LOSS_SHAPES if op.family == "loss" else SHAPES)[operand.axes[0]][0]


def dtypes(op: Any, operand: Any) -> str:
    """The dtypes that an operand may have."""
    if operand.element in ("accumulator", "either"):
        return "float32; float64 for float64" + ("; or that of the input" if operand.element == "either" else "")
    names = operand.element.split() or (op.indices if operand.index else op.elements)
    return ", ".join(BY_NAME[name].numpy_name for name in names)


#: what formulas of bytes count
COUNTED = {"segment": "N rows of C columns in S segments", "reduce": "n elements of `x` and m results", "scan": "n elements of `x`"}
#: what their letters stand for
LETTERS = {"e": "an element", "i": "an id or index", "r": "a result of another dtype"}


def moved(op: Any) -> str:
    """The bytes of all operands, once each, as a formula, and what its letters stand for."""
    counts: dict[str, Counter[str]] = {}
    for operand in op.operands:
        size = "i" if operand.index else "r" if operand.element else "e"
        symbols = [(EXTENTS if op.family == "segment" else SHAPES)[axis][1] for axis in operand.axes]
        counts.setdefault(size, Counter())[" · ".join(symbols)] += 1
    terms = []
    for size, elements in counts.items():
        total = " + ".join(name if times == 1 else f"{times} {name}" for name, times in elements.items())
        terms.append(f"{size} · ({total})" if "+" in total else f"{size} · {total}")
    return f"{' + '.join(terms)}, for {COUNTED[op.family]}; " + ", ".join(f"{size} bytes {LETTERS[size]}" for size in counts)


def sources(op: Any) -> list[str]:
    """Where the methods of an op's variants and formulas come from."""
    words = " ".join([op.name, *(variant.name for variant in op.variants)])
    return [source for pattern, source in SOURCES.items() if re.search(rf"(?:^|[_ ])(?:{pattern})(?:$|[_ ])", words)]


def directive(value: Any) -> str:
    """The directive that documents a name."""
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if callable(value) else "data" if type(value) is dict else "autodata"


def names() -> dict[str, list[str]]:
    """Public names that are neither ops nor modules, by directive."""
    found: dict[str, list[str]] = {"autofunction": [], "autoclass": [], "autoexception": [], "autodata": []}
    for name in nb.__all__:
        if name not in nb.OPS and not inspect.ismodule(getattr(nb, name)):
            found[directive(getattr(nb, name))].append(name)
    return found


def modules() -> dict[str, dict[Any, list[str]]]:
    """Public modules by page, each with the names that are its own."""
    pages = {name: [getattr(nb, name)] for name in nb.__all__ if inspect.ismodule(getattr(nb, name))}
    pages["torch"] = [import_module(f"numba_baracuda.{name}") for name, needed in TORCH.items() if all(map(find_spec, needed))]
    found = {page: {module: own for module in listed if (own := _own(module, page == "torch"))} for page, listed in pages.items()}
    return {page: listed for page, listed in found.items() if listed}


def _own(module: Any, but_ops: bool) -> list[str]:
    """The names of a module that the package does not have, or has as something else, with or without those of ops."""
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")]
    public = [name for name in getattr(module, "__all__", defined) if not (but_ops and name in nb.OPS)]
    return [name for name in public if getattr(module, name) is not getattr(nb, name, None)]


def write(app: Any) -> None:
    """All pages, before Sphinx looks for pages."""
    root = Path(app.srcdir) / "generated"
    shutil.rmtree(root, ignore_errors=True)
    (root / "ops").mkdir(parents=True)
    templates = Environment(
        loader=FileSystemLoader(Path(app.srcdir) / "_templates"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    templates.globals.update(shape=shape, dtypes=dtypes, moved=moved, sources=sources, guides=GUIDES, directive=directive)

    def put(path: str, template: str, **given: Any) -> None:
        (root / f"{path}.md").write_text(templates.get_template(f"{template}.md.jinja").render(given), encoding="utf-8")

    rates, gradients = measured(), {op.backward for op in nb.OPS.values()}
    for op in nb.OPS.values():
        if op.name not in gradients:
            ops = [op] + ([nb.OPS[op.backward]] if op.backward else [])
            put(f"ops/{op.name}", "op", ops=ops, rates=rates)
    put("names", "names", names=names())
    put("plots", "plots", plots=sorted(path.stem.removesuffix("-light") for path in root.parent.glob("_static/plots/*-light.svg")))
    for page, listed in modules().items():
        put(f"{page}_names", "module_names", page=page, modules=listed, guide=(root.parent / f"{page}.md").exists())


_PLOT = r"((?:\.\./)*_static/plots/[\w-]+)"
#: what readers of the repository see in pages, and what the site has instead
CHANGES = {
    r"\]\(\.\./CONTRIBUTING\.md": "](contributing.md",
    r"\]\(\.\./README\.md": "](index.md",
    rf"^!\[(.*)\]\({_PLOT}-light\.svg\)$": "\n".join(
        [
            "````{container} plot",
            *(f"```{{image}} \\2-{theme}.svg\n:alt: \\1\n:class: only-{theme} dark-light\n```" for theme in ("light", "dark")),
            "````",
        ]
    ),
}


def adapt(app: Any, page: str, source: list[str]) -> None:
    """Puts links in their place; a pattern of a table of contents that matches nothing is left out."""
    text = source[0]
    if page == "ops":
        text = re.sub(r"^\| `(\w+)` \|", r"| [`\1`](generated/ops/\1.md) |", text, flags=re.MULTILINE)
    for pattern, change in CHANGES.items():
        text = re.sub(pattern, change, text, flags=re.MULTILINE)
    source[0] = re.sub(r"^[\w/]+\*$", lambda found: found[0] if any(Path(app.srcdir).glob(found[0])) else "", text, flags=re.MULTILINE)


def as_called(app: Any, what: str, name: str, value: Any, options: Any, signature: Any, returns: Any) -> tuple[Any, Any]:
    """A function without Numba's first parameter, which kernels do not pass."""
    return signature and signature.replace("(typingctx, ", "(").replace("(typingctx)", "()"), returns


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", write)
    app.connect("source-read", adapt)
    app.connect("autodoc-process-signature", as_called)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
