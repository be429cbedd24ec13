"""The fused linear cross-entropy where ranks have parts of the classes, of the rows, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..arrays import allocation, streams
from ..arrays.views import View
from ..core.dtypes import BY_NAME
from ..core.errors import BaracudaError, InvalidProblem
from ..core.options import choice, flag, key_of, refusal
from ..loss.calls import FusedLinearCrossEntropyResult, read
from ..loss.compact import CountedRows, results_of_rows
from ..loss.descriptor import FLCE_DEFAULT_IGNORE_INDEX, FusedLinearCrossEntropyDescriptor
from ..loss.shards import ShardDescriptor
from ..plans.signatures import guarded
from .agreement import Call, agree, telling
from .communicator import Alone, Communicator, communicator
from .loss_run import NAME, Rows, check_part, run_shard

_REDUCTIONS = ("all_reduce", "reduce_scatter")
_ROWS = ("replicated", "sharded")


@guarded
def fused_linear_cross_entropy(
    input: Any,
    weight: Any,
    target: Any,
    *,
    group: Any = None,
    vocab_range: tuple[int, int] | None = None,
    rows: str = "replicated",
    reduce_grad_input: str | None = "all_reduce",
    grad_input_accum: str | None = None,
    data_group: Any = None,
    reduction: str = "mean",
    ignore_index: int = FLCE_DEFAULT_IGNORE_INDEX,
    bias: Any = None,
    label_smoothing: float = 0.0,
    lse_square_scale: float = 0.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    class_weight: Any = None,
    row_weight: Any = None,
    dy: Any = None,
    dy_entropy: Any = None,
    skip_ignored: bool = False,
    grad_input: bool = False,
    grad_weight: Any = False,
    grad_bias: Any = False,
    accumulate_grad_weight: bool = False,
    grad_weight_accum: str | None = None,
    return_lse: bool = False,
    return_z_loss: bool = False,
    return_accuracy: bool = False,
    return_predicted: bool = False,
    return_entropy: bool = False,
    chunk: str | int = "auto",
    max_workspace_bytes: int | None = None,
) -> FusedLinearCrossEntropyResult:
    """:func:`numba_baracuda.fused_linear_cross_entropy` of a ``weight`` [V, H] whose rows are divided among the ranks of ``group``.

    ``weight`` [v1 − v0, H] holds the classes from v0 to v1 − 1, ``bias`` [v1 − v0] and the gradients of both belong to them. Parts follow one another
    in the order of ranks, may be of any sizes, and may be empty; ``vocab_range`` = (v0, v1) is checked if given. ``target`` holds classes of all V,
    and ``class_weight`` [V] their weights. A target on another rank is not out of range: that is one outside of [0, V).

    ``rows``: "replicated", ``input`` [BT, H], ``target``, ``row_weight``, ``dy`` and ``dy_entropy`` are the same on all ranks; or "sharded", each
    rank has its own rows of them, maybe none, in the order of ranks, as under sequence parallelism. Results with an element for each row are then
    those of its own.

    ``grad_input`` is a sum over ranks. ``reduce_grad_input``: "all_reduce", every rank gets the sum; "reduce_scatter", a rank gets its own rows of
    it, of replicated rows the ``rank``-th ⌈BT / size⌉; or None, every rank gets its own term. Terms are rounded to the input's dtype before they are
    added, with ``grad_input_accum="f32"`` the sum is. Of sharded rows, "all_reduce" and None give those of all ranks, each part padded to the
    longest.

    ``data_group``: ranks with other rows and the same classes. Loss, z-loss and accuracy are then those of all their rows: "mean" divides by the
    count of all targets. Gradients are a rank's share: their sum over data_group is the gradient of the whole batch.

    For each chunk of rows, ranks exchange 12 to 28 bytes a row in one all-gather, while the logits of the next chunk are multiplied: the maximum, the
    sum of exponentials, the target's logit and what options need, in float32 (float64). Each rank merges them in the order of ranks, so that all
    have the same bits in every run. Two chunks of logits exist at a time.

    Other arguments are those of the single-GPU function. ``skip_ignored`` leaves ignored rows out of the exchanges, too; "reduce_scatter" is then
    an "all_reduce" of the rows that count, of which a rank keeps its own. Gradients are asked for by True; ``grad_weight`` and ``grad_bias`` may be
    arrays. Ranks may differ in the numbers of classes and rows, not in options, dtypes, width and which gradients they want. ``group`` and
    ``data_group`` are communicators, torch ``ProcessGroup`` or one-dimensional ``DeviceMesh``, or ``cupy.cuda.nccl.NcclCommunicator``; None is this
    process alone. Work goes to the current stream of the arrays' framework.

    Raises on every rank, of ``data_group``, too, what one raises about its arguments, and ``InvalidProblem`` where ranks disagree.
    """
    given = {
        "input": input, "weight": weight, "target": target, "bias": bias, "class_weight": class_weight, "row_weight": row_weight, "dy": dy,
        "dy_entropy": dy_entropy,
    }  # fmt: skip
    options = {
        "reduction": reduction, "ignore_index": ignore_index, "label_smoothing": label_smoothing, "lse_square_scale": lse_square_scale,
        "softcap": softcap, "logit_scale": logit_scale, "chunk": chunk, "max_workspace_bytes": max_workspace_bytes,
        "accumulate_grad_weight": accumulate_grad_weight, "grad_weight_accum": grad_weight_accum,
    }  # fmt: skip
    ways = {"rows": rows, "reduce_grad_input": reduce_grad_input, "grad_input_accum": grad_input_accum, "skip_ignored": skip_ignored}
    returned = {"lse": return_lse, "z_loss": return_z_loss, "accuracy": return_accuracy, "predicted": return_predicted}
    returned |= {"entropy": return_entropy}
    gradients = {"grad_input": grad_input, "grad_weight": grad_weight, "grad_bias": grad_bias}
    wanted = {name: each for name, each in gradients.items() if each is not None and each is not False}
    comm, data = groups_of(group, data_group)
    with telling(NAME, *waiting(comm, data)):
        x, w = read(input, NAME, "input"), read(weight, NAME, "weight")
    present = {name: each for name, each in given.items() if each is not None}

    def describe() -> Call:
        for name, each in returned.items():
            flag(NAME, f"return_{name}", each)
        flag(NAME, "skip_ignored", skip_ignored)
        choice(NAME, "rows", rows, _ROWS)
        if reduce_grad_input is not None:
            choice(NAME, "reduce_grad_input", reduce_grad_input, _REDUCTIONS)
        if grad_input_accum is not None:
            choice(NAME, "grad_input_accum", grad_input_accum, tuple(dict.fromkeys((x.element, BY_NAME[x.element].accumulator))))
        if grad_input not in (False, True, None):
            raise refusal(NAME, "grad_input", grad_input, "True or False: its shape depends on all ranks")
        if accumulate_grad_weight and wanted.get("grad_weight", True) is True:
            raise refusal(NAME, "grad_weight", grad_weight, "an array, to which accumulate_grad_weight adds")
        check_part(x, w, present, {name: each for name, each in wanted.items() if each is not True}, options)
        return Call(alike() | ({"rows of input": x.shape[0]} if rows == "replicated" else {}), [x.shape[0], w.shape[0], vocab_range])

    def alike() -> dict[str, Any]:
        """What is the same on all ranks of both groups."""
        same: dict[str, Any] = {"dtype of input": BY_NAME[x.element].numpy_name, "width of input": x.shape[1]}
        same |= {"operands": sorted(present), "gradients": sorted(wanted)}
        same |= {name: str(each) for name, each in (options | ways | returned).items()}
        return same if class_weight is None else same | {"classes of class_weight": len(class_weight)}

    settings = sorted(present), [(name, each is True) for name, each in wanted.items()], key_of(*options.values(), *ways.values(), *returned.values())
    kept = repr((x.element, w.element, tuple(w.shape), tuple(x.shape[1:]), settings))
    handle, failure, weights = streams.stream_handle(None, x, NAME), None, None if class_weight is None else len(class_weight)
    try:
        every = agree(NAME, comm, (kept, tuple(x.shape), vocab_range), describe)
        held = Rows(comm, [each[0] for each in every], rows == "sharded", ignore_index, handle)
        problem = _problem(comm, held, x, every, options, grad_input_accum, weights)
    except BaracudaError as error:
        failure = error
    if data.size > 1:  # ranks of a grid learn what is wrong in its rows by its columns
        failure = _told(data, (kept, "data"), failure, lambda: Call(alike() | {"rows of weight": w.shape[0]}))
        failure = _told(comm, (kept, "data"), failure, lambda: Call({}))
    if failure is not None:
        raise failure
    given, names = held.gathered(present, problem.each), [name for name in returned if returned[name]]
    if skip_ignored and problem.bt:
        made = _counted(comm, data, held, problem, given, wanted, names, reduce_grad_input, handle)
    else:
        made = run_shard(comm, data, problem, given, wanted, names, reduce_grad_input, handle)
    made = {name: held.own(name, each, problem, reduce_grad_input) for name, each in made.items()}
    return FusedLinearCrossEntropyResult(made.pop("out"), **made)


def _counted(
    comm: Communicator, data: Communicator, held: Rows, problem: ShardDescriptor, given: dict[str, Any], wanted: dict[str, Any], names: list[str],
    reduce_grad_input: str | None, stream: int,
) -> dict[str, Any]:  # fmt: skip
    """The results of the rows whose target is not ignored, which are the same on all ranks of ``comm``, and those of the others, which are 0."""
    counted, scatter = CountedRows(NAME, read(given["target"], NAME, "target"), problem.ignore_index, stream), reduce_grad_input == "reduce_scatter"
    few, inputs = replace(problem, bt=counted.rows), counted.inputs(given, problem.each)
    made = run_shard(comm, data, few, inputs, wanted, names, "all_reduce" if scatter else reduce_grad_input, stream)
    for name in results_of_rows(problem.each):
        if name in made:
            view = read(made[name], NAME, name)
            whole = allocation.empty(view, (problem.bt, *view.shape[1:]), view.element, stream)
            counted.scatter(made[name], whole)
            made[name] = whole[held.first(problem.bt) :] if scatter and name == "grad_input" else whole
    return made


def groups_of(group: Any, data_group: Any) -> tuple[Communicator, Communicator]:
    """The communicators of both groups; a process is alone in one that is None."""
    comm, data = (Alone() if each is None else communicator(NAME, each) for each in (group, data_group))
    return comm, data


def waiting(comm: Communicator, data: Communicator) -> tuple[Communicator, ...]:
    """The groups in which ranks tell one another of a call, one after another."""
    return (comm, data, comm) if data.size > 1 else (comm,)


def _told(comm: Communicator, key: Any, failure: BaracudaError | None, say: Callable[[], Call]) -> BaracudaError | None:
    """The failure of this rank, or of another one of the group, or None if they agree."""

    def describe() -> Call:
        if failure is not None:
            raise failure
        return say()

    try:
        agree(NAME, comm, key, describe)
    except BaracudaError as error:
        return failure or error
    return failure


def _problem(
    comm: Communicator, held: Rows, x: View, every: list[Any], options: dict[str, Any], accum: str | None, weights: int | None
) -> ShardDescriptor:
    """The problem of this rank, once all have agreed; raises the same on every rank."""
    classes = [each[1] for each in every]
    total, first = sum(classes), sum(classes[: comm.rank])
    for rank, (_, count, given) in enumerate(every):
        wants = [sum(classes[:rank]), sum(classes[:rank]) + count]
        if given is not None and list(given) != wants:
            raise InvalidProblem(f"{NAME}: vocab_range is {list(given)} on rank {rank}, wants {wants}, as weight has {classes} rows on the ranks")
    if not total:
        raise InvalidProblem(f"{NAME}: weight has no rows on any rank, wants a class or more")
    if weights not in (None, total):
        raise InvalidProblem(f"{NAME}: class_weight has shape [{weights}], wants [{total}], the classes of all ranks")
    half = None if options["max_workspace_bytes"] is None else options["max_workspace_bytes"] // 2  # two chunks of logits exist at a time
    widest = FusedLinearCrossEntropyDescriptor(held.total, x.shape[1], max(classes), x.element, **options | {"max_workspace_bytes": half})
    options = options | {"chunk": widest.chunk_size}
    own = {"ranks": comm.size, "first_class": first, "total_classes": total, "wide_grad_input": accum not in (None, x.element)}
    return ShardDescriptor(held.total, x.shape[1], classes[comm.rank], x.element, **options, **own)
