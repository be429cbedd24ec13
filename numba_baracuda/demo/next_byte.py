"""Demo of the loss family: a model that reads eight bytes of the standard library's source and tells the next, trained from nothing.

The model is that of Y. Bengio et al., A Neural Probabilistic Language Model, JMLR 2003, with its direct connections alone: a vector for each byte at
each position before, and one linear layer over them all. It is trained after J. Duchi et al., Adaptive Subgradient Methods for Online Learning
and Stochastic Optimization, JMLR 2011, and compared with the entropies of C. E. Shannon, Prediction and Entropy of Printed English, 1951.
"""

from __future__ import annotations

import sysconfig
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .imports import Module, find_modules
from .stage import Stage, host

RELATIVE_TOLERANCE = 1e-5  #: of a float32 loss to the float64 one, and of a gradient's elements to the greatest of them
LEAST_FALL = 1.0  #: of the loss in the emulator, in nats per byte; on a GPU it is to end below the entropy of a byte
BYTES = 256
PROMPT = b"    def "
CONTEXT = len(PROMPT)  #: bytes that the model sees
WRITTEN = 240  #: bytes that it writes when it is trained
PARTS = 4  #: of the training; the mean loss of the last is what it came to
RATE = 0.15  #: of learning
TINY = 1e-6  #: beside a root that may be 0, or little but rounding
SPREAD = 0.1  #: of the numbers that training begins with
BAR = 30  #: columns for the loss without a model


@dataclass(frozen=True)
class Size:
    """Of a training."""

    rows: int  #: bytes told in a step
    features: int  #: numbers for a byte at a position
    steps: int


#: by whether the kernels are emulated and whether it shall be quick
SIZES = {
    (True, True): Size(48, 8, 8),
    (True, False): Size(48, 8, 12),
    (False, True): Size(16384, 32, 200),
    (False, False): Size(16384, 32, 2000),
}


@dataclass(frozen=True)
class Model:
    """What is learned, in place; float32 arrays of one kind."""

    table: Any  #: ``[CONTEXT · BYTES, features]``, the vector of byte b at p positions before the nearest is row BYTES · p + b
    weight: Any  #: ``[BYTES, CONTEXT · features]``


def source_text(modules: Iterable[Module]) -> NDArray[np.uint8]:
    """The sources of the modules one after another; a link to no file is left out."""
    return np.frombuffer(b"".join(module.path.read_bytes() for module in modules if module.path.is_file()), np.uint8)


def entropies(text: NDArray[np.uint8]) -> tuple[float, float]:
    """The entropy of a byte of the text, and of one whose predecessor is known: nats per byte, by their frequencies, of at least two bytes."""

    def entropy(counts: NDArray[np.intp]) -> float:
        share = counts[counts > 0] / counts.sum()
        return float(-(share * np.log(share)).sum())

    pairs = np.bincount(BYTES * text[:-1].astype(np.intp) + text[1:], minlength=BYTES * BYTES)
    return entropy(np.bincount(text)), entropy(pairs) - entropy(pairs.reshape(BYTES, BYTES).sum(axis=1))


def draw_model(xp: ModuleType, features: int) -> Model:
    """Random vectors and weights, the same at each call."""
    random = np.random.default_rng(7)
    shapes = (CONTEXT * BYTES, features), (BYTES, CONTEXT * features)
    return Model(*(xp.asarray(SPREAD * random.standard_normal(shape, np.float32)) for shape in shapes))


def context_ids(xp: ModuleType, text: Any, positions: Any) -> Any:
    """The rows of :attr:`Model.table` that stand for the bytes before each position, nearest first, int32 ``[positions, CONTEXT]``."""
    before = xp.arange(CONTEXT, dtype=xp.int32)
    return text[positions[:, None] - 1 - before] + BYTES * before


def draw_batch(xp: ModuleType, text: Any, rows: int, random: np.random.Generator) -> tuple[Any, Any]:
    """The :func:`context_ids` of as many positions in the text, and the bytes there, int32 ``[rows]``; any with enough bytes before it may come."""
    positions = xp.asarray(random.integers(CONTEXT, len(text), rows))
    return context_ids(xp, text, positions), text[positions].astype(xp.int32)


def differentiate(model: Model, ids: Any, target: Any, out: Any = None) -> tuple[Any, Any, Any]:
    """The mean loss of a batch, and its gradients with respect to the table and the weight."""
    import numba_baracuda as nb

    vectors = model.table[ids]
    result = nb.fused_linear_cross_entropy(vectors.reshape(len(ids), -1), model.weight, target, grad_input=True, grad_weight=True, out=out)
    grad_table = nb.unsorted_segment_sum(result.grad_input.reshape(-1, vectors.shape[-1]), ids.ravel(), len(model.table))
    return result.loss, grad_table, result.grad_weight


def differentiate_float64(model: Model, ids: NDArray[np.int32], target: NDArray[np.int32]) -> tuple[Any, ...]:
    """The same in NumPy and float64: shares no code with :func:`differentiate`."""
    table, weight = (np.asarray(each, np.float64) for each in (model.table, model.weight))
    vectors = np.concatenate([table[column] for column in ids.T], axis=1)
    powers = np.exp(vectors @ weight.T)
    chance = powers / powers.sum(axis=1, keepdims=True)
    loss = -np.log(chance[np.arange(len(target)), target]).mean()
    slope = (chance - np.eye(BYTES)[target]) / len(target)
    grad_table = np.zeros_like(table)
    for column, grad in zip(ids.T, np.split(slope @ weight, CONTEXT, axis=1), strict=True):
        np.add.at(grad_table, column, grad)
    return loss, grad_table, slope.T @ vectors


def train(
    xp: ModuleType, text: Any, model: Model, size: Size, on_step: Callable[[int, float], None] = lambda done, loss: None
) -> NDArray[np.float32]:
    """Train the model on batches of the text, the same at each call, and return the loss of every step in nats per byte.

    g being a gradient, s += g² and parameter −= RATE · g / (√s + TINY). ``on_step`` is told the number of steps done and the loss of the last,
    now and then.
    """
    random = np.random.default_rng(1)
    parameters = model.table, model.weight
    squares = [xp.zeros_like(each) for each in parameters]
    losses = xp.empty(size.steps, xp.float32)
    told = max(1, size.steps // 50)  # the host waits for the device to tell
    for step in range(size.steps):
        _, *gradients = differentiate(model, *draw_batch(xp, text, size.rows, random), out=losses[step : step + 1])
        for parameter, gradient, sums in zip(parameters, gradients, squares, strict=True):
            sums += gradient * gradient
            parameter -= RATE * gradient / (xp.sqrt(sums) + TINY)
        if (step + 1) % told == 0:
            on_step(step + 1, float(losses[step]))
    found: NDArray[np.float32] = host(losses)
    return found


def write(model: Model, length: int) -> bytes:
    """As many bytes after ``PROMPT``, each drawn as the model of NumPy arrays thinks it likely; the same at each call."""
    random = np.random.default_rng(3)
    written = np.frombuffer(PROMPT, np.uint8)
    while len(written) < CONTEXT + length:
        logits = model.weight @ model.table[context_ids(np, written, np.array([len(written)]))].ravel()
        written = np.append(written, np.uint8((logits + random.gumbel(size=BYTES)).argmax()))
    return written.tobytes()[CONTEXT:]


def first_error(xp: ModuleType, text: Any, size: Size) -> float:
    """The largest relative error of loss and gradients in the first step of :func:`train`."""
    model = draw_model(xp, size.features)
    ids, target = draw_batch(xp, text, size.rows, np.random.default_rng(1))
    found = differentiate(model, ids, target)
    wanted = differentiate_float64(Model(host(model.table), host(model.weight)), host(ids), host(target))
    return float(np.max([abs(host(each) - true).max() / abs(true).max() for each, true in zip(found, wanted, strict=True)]))


def part_means(losses: NDArray[np.float32]) -> list[tuple[int, float]]:
    """For each of ``PARTS`` parts of the training: the number of steps done by its end, and the mean loss of its own."""
    parts = np.array_split(losses, PARTS)
    return [(int(end), float(part.mean(dtype=np.float64))) for end, part in zip(np.cumsum([len(part) for part in parts]), parts, strict=True)]


def printable(written: bytes) -> str:
    """As ASCII, with a question mark for what is none or would not show."""
    return "".join(chr(byte) if byte == ord("\n") or (byte < 128 and chr(byte).isprintable()) else "?" for byte in written)


def run(stage: Stage) -> bool:
    """Print the loss as it falls beside the entropies of the text, what the model writes and the error against float64; no sources, nothing."""
    stage.begin("Loss: a model of the next byte, trained from nothing")
    source = source_text(find_modules(Path(sysconfig.get_paths()["stdlib"])))
    if len(source) <= CONTEXT:
        stage.say("This interpreter comes without the sources of its library: no bytes to learn from.")
        return True
    xp = stage.xp
    size, text = SIZES[stage.emulated, stage.quick], xp.asarray(source)
    with stage.waiting("Checking the first step"):
        worst = first_error(xp, text, size)
    model = draw_model(xp, size.features)
    began = time.perf_counter()
    with stage.waiting("Learning the standard library", size.steps) as tell:
        losses = train(xp, text, model, size, lambda done, loss: tell(done, remark=f"{loss:.3f} nats per byte"))
    seconds = time.perf_counter() - began

    alone, paired = entropies(source)
    stage.console.print(_table(losses, alone, paired))
    written = write(Model(host(model.table), host(model.weight)), WRITTEN)
    stage.console.print(Panel(Text(printable(written)), title=f'What the model writes after "{PROMPT.decode()}"'))
    first, (_, last) = float(losses[0]), part_means(losses)[-1]
    learned = last <= first - LEAST_FALL if stage.emulated else last < alone
    aim = f"lower by at least {LEAST_FALL:.1f}" if stage.emulated else "below the entropy of a byte"
    stage.say(
        f"Learned from {len(source):,} bytes, {size.rows} at each of {size.steps} steps, in {seconds:.1f} s: the loss went from {first:.3f} to "
        f"{last:.3f} nats per byte, {'' if learned else 'NOT '}{aim}.",
        "" if learned else "bold red",
    )
    stage.plot("loss", lambda axes: _draw(axes, losses, alone, paired))
    what = f"Loss and gradients of the first step, {CONTEXT * size.features} features and {BYTES} classes in float32,"
    return stage.verdict(what, worst, RELATIVE_TOLERANCE) and learned


def _table(losses: NDArray[np.float32], alone: float, paired: float) -> Table:
    table = Table(title="What it costs to tell the next byte of the library's source")
    table.add_column("told by")
    table.add_column("nats per byte", justify="right")
    table.add_column("")
    rows = [("all bytes as likely", float(np.log(BYTES))), ("model at step 1", float(losses[0]))]
    rows += [(f"model up to step {end}", mean) for end, mean in part_means(losses)]
    rows += [("entropy of a byte", alone), ("the same, given the last", paired)]
    for name, nats in rows:
        table.add_row(name, f"{nats:.3f}", ProgressBar(total=np.log(BYTES), completed=nats, width=BAR, finished_style="bar.complete"))
    return table


def _draw(axes: Any, losses: NDArray[np.float32], alone: float, paired: float) -> None:
    axes.plot(np.arange(1, len(losses) + 1), losses, label="model")
    for nats, label, line in ((alone, "entropy of a byte", "--"), (paired, "the same, given the last", ":")):
        axes.axhline(nats, color="grey", linestyle=line, label=label)
    axes.set(xlabel="step", ylabel="nats per byte", ylim=(0, None))
    axes.legend()
