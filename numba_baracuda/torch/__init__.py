"""The ops for PyTorch: differentiable, and known to ``torch.compile``, ``torch.export`` and ``torch.func``.

``numba_baracuda.torch.segment_sum(input, segment_ids, num_segments)`` takes the arguments of ``numba_baracuda.segment_sum`` but ``stream`` and
``workspace``: work goes to the current stream of the tensors' device. Every op of ``numba_baracuda.OPS`` is here under its name, but the loss,
which is :func:`linear_cross_entropy`; :func:`linear_log_probs` has what it knows of each row.
Importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.registry import OPS
from ..plans.signatures import dressed
from . import index_op as index_op
from .autograd import functions_of
from .linear import FusedLinearCrossEntropyLoss as FusedLinearCrossEntropyLoss
from .linear import linear_cross_entropy as linear_cross_entropy
from .log_probs import linear_log_probs as linear_log_probs
from .operators import Operator


def _public(operator: Operator) -> Callable[..., Any]:
    made = dressed(operator.public(), operator.op, operator.schema.signature, operator.schema.function.__doc__ or "")
    made.__module__ = __name__
    return made


OPERATORS = {name: Operator(op) for name, op in OPS.items() if op.family != "loss"}
for _each in OPERATORS.values():
    _each.differentiate(*functions_of(_each, OPERATORS))
FUNCTIONS = {name: _public(operator) for name, operator in OPERATORS.items()}
globals().update(FUNCTIONS)
__all__ = sorted([*FUNCTIONS, "FusedLinearCrossEntropyLoss", "linear_cross_entropy", "linear_log_probs"])


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
