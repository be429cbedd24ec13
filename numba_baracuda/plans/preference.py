"""A caller's preference for the choice of variants, and the SKU and guarantee of the chosen one."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..core import html
from ..core.dtypes import ElementKind
from ..core.options import flag, whole
from ..core.vocabulary import ArchSku, BackendKind, MathPrecision, OpCategory


@dataclass(frozen=True)
class PlanPreference:
    """A caller's preference for the choice of variants.

    ``max_workspace_bytes``: only variants whose workspace fits. ``deterministic``: only variants that give the same bits in every run.
    ``prefer_backend``: only kernels of this backend. ``allow_sm90a``: whether kernels that run only on compute capability 9.0 may be
    chosen; there are none.
    """

    max_workspace_bytes: int | None = None
    deterministic: bool = True
    prefer_backend: BackendKind | str | None = None
    allow_sm90a: bool = True

    def __post_init__(self) -> None:
        for name in ("deterministic", "allow_sm90a"):
            object.__setattr__(self, name, flag("PlanPreference", name, getattr(self, name)))
        if self.max_workspace_bytes is not None:
            object.__setattr__(self, "max_workspace_bytes", whole("PlanPreference", "max_workspace_bytes", self.max_workspace_bytes, 0))
        if self.prefer_backend is not None:
            object.__setattr__(self, "prefer_backend", BackendKind.parse(self.prefer_backend))


@dataclass(frozen=True)
class PrecisionGuarantee:
    """A plan's guarantee for its numbers; ``roundings`` lists those other than the one of each result."""

    math_precision: MathPrecision
    accumulator: ElementKind
    bit_stable_on_same_hardware: bool
    deterministic: bool
    roundings: str = ""


@dataclass(frozen=True)
class KernelSku:
    """Identity of what a plan runs; unique for each op, dtypes, variant and architecture."""

    category: OpCategory
    op: int
    element: ElementKind
    aux_element: ElementKind | None
    arch: ArchSku
    backend: BackendKind
    variant: str
    precision_guarantee: PrecisionGuarantee
    layout: None = None
    epilogue: None = None

    def facts(self) -> list[tuple[str, str]]:
        """Names and values of what is known, those of the guarantee included; enums by their names."""
        found = [(each.name, getattr(owner, each.name)) for owner in (self, self.precision_guarantee) for each in fields(owner)]
        return [(name, str(getattr(value, "name", value))) for name, value in found if value not in (None, "") and name != "precision_guarantee"]

    def _repr_html_(self) -> str:
        return html.table((), self.facts(), "KernelSku")
