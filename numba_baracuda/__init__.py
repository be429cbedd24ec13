"""Fast, correct, differentiable kernels for Python GPU arrays, written in Python with ``numba.cuda``.

Names are imported when they are first used, so that ``import numba_baracuda`` costs little more than NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core.lazy import load

if TYPE_CHECKING:
    from .algebra import Monoid as Monoid
    from .arrays.emulation import EmulationWarning as EmulationWarning
    from .core.dtypes import ElementKind as ElementKind
    from .core.errors import BaracudaError as BaracudaError
    from .core.errors import BufferTooSmall as BufferTooSmall
    from .core.errors import InvalidProblem as InvalidProblem
    from .core.errors import KernelLaunchError as KernelLaunchError
    from .core.errors import MisalignedOperand as MisalignedOperand
    from .core.errors import Status as Status
    from .core.errors import Unsupported as Unsupported
    from .core.errors import WorkspaceTooSmall as WorkspaceTooSmall
    from .core.registry import OPS as OPS
    from .core.vocabulary import ArchSku as ArchSku
    from .core.vocabulary import BackendKind as BackendKind
    from .core.vocabulary import LossKind as LossKind
    from .core.vocabulary import LossReduction as LossReduction
    from .core.vocabulary import MathPrecision as MathPrecision
    from .core.vocabulary import OpCategory as OpCategory
    from .core.vocabulary import ReduceKind as ReduceKind
    from .core.vocabulary import ScanKind as ScanKind
    from .loss import FLCE_DEFAULT_IGNORE_INDEX as FLCE_DEFAULT_IGNORE_INDEX
    from .loss import FusedLinearCrossEntropyBackwardDescriptor as FusedLinearCrossEntropyBackwardDescriptor
    from .loss import FusedLinearCrossEntropyBackwardPlan as FusedLinearCrossEntropyBackwardPlan
    from .loss import FusedLinearCrossEntropyDescriptor as FusedLinearCrossEntropyDescriptor
    from .loss import FusedLinearCrossEntropyPlan as FusedLinearCrossEntropyPlan
    from .loss import FusedLinearCrossEntropyResult as FusedLinearCrossEntropyResult
    from .loss import fused_linear_cross_entropy as fused_linear_cross_entropy
    from .loss import fused_linear_cross_entropy_backward as fused_linear_cross_entropy_backward
    from .plans.plan import Plan as Plan
    from .plans.plan import select as select
    from .plans.preference import KernelSku as KernelSku
    from .plans.preference import PlanPreference as PlanPreference
    from .plans.preference import PrecisionGuarantee as PrecisionGuarantee
    from .reduce import reduce_all as reduce_all
    from .reduce import reduce_any as reduce_any
    from .reduce import reduce_argmax as reduce_argmax
    from .reduce import reduce_argmin as reduce_argmin
    from .reduce import reduce_axis as reduce_axis
    from .reduce import reduce_count_nonzero as reduce_count_nonzero
    from .reduce import reduce_logsumexp as reduce_logsumexp
    from .reduce import reduce_logsumexp_backward as reduce_logsumexp_backward
    from .reduce import reduce_max as reduce_max
    from .reduce import reduce_max_backward as reduce_max_backward
    from .reduce import reduce_mean as reduce_mean
    from .reduce import reduce_mean_backward as reduce_mean_backward
    from .reduce import reduce_min as reduce_min
    from .reduce import reduce_min_backward as reduce_min_backward
    from .reduce import reduce_norm2 as reduce_norm2
    from .reduce import reduce_norm2_backward as reduce_norm2_backward
    from .reduce import reduce_prod as reduce_prod
    from .reduce import reduce_prod_backward as reduce_prod_backward
    from .reduce import reduce_std as reduce_std
    from .reduce import reduce_std_backward as reduce_std_backward
    from .reduce import reduce_sum as reduce_sum
    from .reduce import reduce_sum_backward as reduce_sum_backward
    from .reduce import reduce_var as reduce_var
    from .reduce import reduce_var_backward as reduce_var_backward
    from .reduce.descriptor import ReduceBackwardDescriptor as ReduceBackwardDescriptor
    from .reduce.descriptor import ReduceDescriptor as ReduceDescriptor
    from .scan import cummax as cummax
    from .scan import cummax_backward as cummax_backward
    from .scan import cummin as cummin
    from .scan import cummin_backward as cummin_backward
    from .scan import cumprod as cumprod
    from .scan import cumprod_backward as cumprod_backward
    from .scan import cumsum as cumsum
    from .scan import cumsum_backward as cumsum_backward
    from .scan import logcumsumexp as logcumsumexp
    from .scan import logcumsumexp_backward as logcumsumexp_backward
    from .scan import scan_axis as scan_axis
    from .scan.descriptor import ScanBackwardDescriptor as ScanBackwardDescriptor
    from .scan.descriptor import ScanDescriptor as ScanDescriptor
    from .segment import SegmentKind as SegmentKind
    from .segment import segment_argmax as segment_argmax
    from .segment import segment_argmin as segment_argmin
    from .segment import segment_log_softmax as segment_log_softmax
    from .segment import segment_log_softmax_backward as segment_log_softmax_backward
    from .segment import segment_logsumexp as segment_logsumexp
    from .segment import segment_logsumexp_backward as segment_logsumexp_backward
    from .segment import segment_max as segment_max
    from .segment import segment_max_backward as segment_max_backward
    from .segment import segment_mean as segment_mean
    from .segment import segment_mean_backward as segment_mean_backward
    from .segment import segment_min as segment_min
    from .segment import segment_min_backward as segment_min_backward
    from .segment import segment_norm2 as segment_norm2
    from .segment import segment_norm2_backward as segment_norm2_backward
    from .segment import segment_prod as segment_prod
    from .segment import segment_prod_backward as segment_prod_backward
    from .segment import segment_reduce as segment_reduce
    from .segment import segment_softmax as segment_softmax
    from .segment import segment_softmax_backward as segment_softmax_backward
    from .segment import segment_std as segment_std
    from .segment import segment_std_backward as segment_std_backward
    from .segment import segment_sum as segment_sum
    from .segment import segment_sum_backward as segment_sum_backward
    from .segment import segment_var as segment_var
    from .segment import segment_var_backward as segment_var_backward
    from .segment import unsorted_segment_argmax as unsorted_segment_argmax
    from .segment import unsorted_segment_argmin as unsorted_segment_argmin
    from .segment import unsorted_segment_log_softmax as unsorted_segment_log_softmax
    from .segment import unsorted_segment_log_softmax_backward as unsorted_segment_log_softmax_backward
    from .segment import unsorted_segment_logsumexp as unsorted_segment_logsumexp
    from .segment import unsorted_segment_logsumexp_backward as unsorted_segment_logsumexp_backward
    from .segment import unsorted_segment_max as unsorted_segment_max
    from .segment import unsorted_segment_max_backward as unsorted_segment_max_backward
    from .segment import unsorted_segment_mean as unsorted_segment_mean
    from .segment import unsorted_segment_mean_backward as unsorted_segment_mean_backward
    from .segment import unsorted_segment_min as unsorted_segment_min
    from .segment import unsorted_segment_min_backward as unsorted_segment_min_backward
    from .segment import unsorted_segment_norm2 as unsorted_segment_norm2
    from .segment import unsorted_segment_norm2_backward as unsorted_segment_norm2_backward
    from .segment import unsorted_segment_prod as unsorted_segment_prod
    from .segment import unsorted_segment_prod_backward as unsorted_segment_prod_backward
    from .segment import unsorted_segment_softmax as unsorted_segment_softmax
    from .segment import unsorted_segment_softmax_backward as unsorted_segment_softmax_backward
    from .segment import unsorted_segment_std as unsorted_segment_std
    from .segment import unsorted_segment_std_backward as unsorted_segment_std_backward
    from .segment import unsorted_segment_sum as unsorted_segment_sum
    from .segment import unsorted_segment_sum_backward as unsorted_segment_sum_backward
    from .segment import unsorted_segment_var as unsorted_segment_var
    from .segment import unsorted_segment_var_backward as unsorted_segment_var_backward
    from .segment.descriptor import SegmentDescriptor as SegmentDescriptor
    from .segment.index import SegmentIndex as SegmentIndex

__version__ = "0.1.0"

_HOMES = {
    "algebra": "Monoid",
    "arrays.emulation": "EmulationWarning",
    "core.dtypes": "ElementKind",
    "core.errors": "BaracudaError BufferTooSmall InvalidProblem KernelLaunchError MisalignedOperand Status Unsupported WorkspaceTooSmall",
    "core.registry": "OPS",
    "core.vocabulary": "ArchSku BackendKind LossKind LossReduction MathPrecision OpCategory ReduceKind ScanKind",
    "loss": (
        "FLCE_DEFAULT_IGNORE_INDEX FusedLinearCrossEntropyBackwardDescriptor FusedLinearCrossEntropyBackwardPlan FusedLinearCrossEntropyDescriptor "
        "FusedLinearCrossEntropyPlan FusedLinearCrossEntropyResult"
    ),
    "plans.plan": "Plan select",
    "plans.preference": "KernelSku PlanPreference PrecisionGuarantee",
    "reduce": "reduce_axis",
    "reduce.descriptor": "ReduceBackwardDescriptor ReduceDescriptor",
    "scan": "scan_axis",
    "scan.descriptor": "ScanBackwardDescriptor ScanDescriptor",
    "segment": "SegmentKind segment_reduce",
    "segment.descriptor": "SegmentDescriptor",
    "segment.index": "SegmentIndex",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_SUBPACKAGES = ("device", "distributed", "loss", "reduce", "scan", "segment")


def _ops() -> Any:
    """The ops, whose functions are public. Their tables are imported when somebody asks for a name that is none of the above."""
    return load(f"{__name__}.core.registry").OPS


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_HOME_OF, *_SUBPACKAGES, *_ops()])
    if name in _SUBPACKAGES:
        value = load(f"{__name__}.{name}")
    elif name in _HOME_OF or (not name.startswith("_") and name in _ops()):
        value = getattr(load(f"{__name__}.{_HOME_OF.get(name) or _ops()[name].family}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
