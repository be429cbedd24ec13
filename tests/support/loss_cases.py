"""Helpers of the tests of the fused linear cross-entropy: operands and options by the op table, problems, and comparisons with
:mod:`loss_reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
from kinds import Kind
from loss_reference import assert_close, wanted

import numba_baracuda as nb
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype

OP = nb.OPS["fused_linear_cross_entropy"]
OUTPUTS = tuple(operand.name for operand in OP.operands if operand.output)
GRADIENTS = tuple(name for name in OUTPUTS if name.startswith("grad_"))
RETURNED = tuple(name for name in OUTPUTS if name not in ("out", *GRADIENTS))
INPUTS = tuple(operand.name for operand in OP.operands if not (operand.output or operand.optional))
#: options that change how the loss is computed, not its result
WAYS: dict[str, tuple[Any, ...]] = {
    "chunk": (1, 16, "lean", "liger"), "grad_weight_accum": ("f32",), "skip_ignored": (True,), "max_workspace_bytes": (1 << 28,),
}  # fmt: skip


def problem(rows: int = 21, width: int = 12, classes: int = 70, kind: str = "f32", *, odd: bool = True) -> tuple[Any, Any, Any]:
    """Input [rows, width], weight [classes, width] and targets [rows], some of which are ignored or no class."""
    rng = np.random.default_rng(rows + classes)
    x, w = rng.standard_normal((rows, width)), rng.standard_normal((classes, width)) / np.sqrt(width) * 2
    target = rng.integers(0, classes, rows)
    if odd and rows > 8:
        target[[2, 5, 7]] = -100, classes, -3
    return x.astype(numpy_dtype(kind)), w.astype(numpy_dtype(kind)), target


def check(kind: Kind, x: Any, w: Any, target: Any, value: str = "f32", **options: Any) -> Any:
    """Checks the loss and both gradients, and that of the bias if there is one."""
    given = {name: kind.array(each) if isinstance(each, np.ndarray) else each for name, each in options.items()}
    fixed = {name: given.pop(name) for name in WAYS if name in given}
    gradients = dict.fromkeys(GRADIENTS[: 3 if "bias" in given else 2], True)
    got = nb.fused_linear_cross_entropy(kind.array(x), kind.array(w), kind.array(target), **given, **fixed, **gradients)
    right = wanted(x, w, target, **{name: each for name, each in options.items() if name not in fixed})
    wide = numpy_dtype(BY_NAME[value].accumulator)
    assert kind.numpy(got.loss).dtype == wide
    assert_close(kind.numpy(got.loss), right, "out", value, x.shape[1])
    for name in gradients:
        made = kind.numpy(getattr(got, name))
        assert made.dtype == x.dtype
        assert_close(made, right, name, value, max(x.shape[0], w.shape[0]))
    return got


rng = np.random.default_rng(11)
CLASS_WEIGHTS, ROW_WEIGHTS = rng.uniform(0.2, 2, 70).astype(np.float32), rng.uniform(-1, 2, 21).astype(np.float32)
BIAS, ENTROPY_GRADIENTS = rng.standard_normal(70).astype(np.float32), rng.uniform(-2, 2, 21).astype(np.float32)
OPTIONS: dict[str, dict[str, Any]] = {
    "bias": {"bias": BIAS},
    "label_smoothing": {"label_smoothing": 0.1},
    "all of it smoothed": {"label_smoothing": 1.0},
    "lse_square_scale": {"lse_square_scale": 0.03},
    "softcap": {"softcap": 1.5},
    "logit_scale": {"logit_scale": 0.25},
    "negative logit_scale": {"logit_scale": -0.5},
    "softcap after logit_scale": {"logit_scale": 3.0, "softcap": 2.0},
    "class_weight": {"class_weight": CLASS_WEIGHTS},
    "negative class_weight": {"class_weight": -CLASS_WEIGHTS},
    "row_weight": {"row_weight": ROW_WEIGHTS},
    "smoothed with weights": {"class_weight": CLASS_WEIGHTS, "label_smoothing": 0.2},
    "squared with weights": {"class_weight": CLASS_WEIGHTS, "lse_square_scale": 0.01, "row_weight": ROW_WEIGHTS},
    "a class is ignored": {"ignore_index": 4},
    "dy": {"dy": np.float32(-2.5)},
    "dy in memory": {"dy": np.array([0.375], np.float32)},
    "dy_entropy": {"dy_entropy": ENTROPY_GRADIENTS, "reduction": "none"},
    "dy_entropy with all": {
        "dy_entropy": ENTROPY_GRADIENTS,
        "reduction": "none",
        "dy": ROW_WEIGHTS,
        "bias": BIAS,
        "label_smoothing": 0.1,
        "lse_square_scale": 1e-3,
        "softcap": 3.0,
        "logit_scale": 1.25,
        "class_weight": CLASS_WEIGHTS,
        "row_weight": ROW_WEIGHTS,
    },
}
EVERYTHING: dict[str, Any] = {
    "bias": OPTIONS["bias"]["bias"], "label_smoothing": 0.1, "lse_square_scale": 1e-3, "softcap": 3.0, "logit_scale": 1.25,
    "class_weight": CLASS_WEIGHTS, "row_weight": ROW_WEIGHTS, "ignore_index": 42, "dy": 0.5,
}  # fmt: skip
