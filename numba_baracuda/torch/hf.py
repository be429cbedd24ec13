"""The loss of causal language models of Hugging Face without their logits: :func:`patch`. Nothing here imports transformers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from ..core.errors import InvalidProblem, Unsupported
from .linear import linear_cross_entropy

_LOSS = "ForCausalLMLoss"
_SOFTCAP = "final_logit_softcapping"
#: attributes of the model; transformers keeps a loss that is set under the second name
_REPLACED = ("loss_function", "_loss_function", "forward")


def causal_lm_loss(
    loss_of: Callable[..., Any], labels: Any, num_items_in_batch: Any = None, ignore_index: int = -100, shift_labels: Any = None
) -> Any:
    """What transformers' ``ForCausalLMLoss`` computes, where ``loss_of(target, reduction=, ignore_index=)`` is the loss of the hidden states.

    A state's target is the next of ``labels`` […, T]; the last has none. ``shift_labels`` are targets already. With ``num_items_in_batch`` the loss
    is the sum divided by it, else the mean over the targets that are not ``ignore_index``.
    """
    if shift_labels is None:
        shift_labels = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    if num_items_in_batch is None:
        return loss_of(shift_labels, reduction="mean", ignore_index=ignore_index)
    loss = loss_of(shift_labels, reduction="sum", ignore_index=ignore_index)
    return loss / (num_items_in_batch.to(loss.device) if isinstance(num_items_in_batch, torch.Tensor) else num_items_in_batch)


class _Patch:
    """What is put in place of a model's forward, of that of its head, and of its loss."""

    def __init__(self, model: Any, head: Any, loss: Callable[..., Any], options: dict[str, Any]) -> None:
        self.model, self.head, self.options, self.fused, self.hidden = model, head, options, False, None
        self.model_forward, self.head_forward, self.original = model.forward, head.forward, loss
        self.own = {name: vars(model)[name] for name in _REPLACED if name in vars(model)}
        self.config = getattr(model, "config", None)
        self.softcap = getattr(self.config, _SOFTCAP, None)
        self.signature = inspect.signature(model.forward)
        model.forward = functools.wraps(model.forward)(lambda *args, **kwargs: self._forward(*args, **kwargs))
        head.forward = self._of_head
        model.loss_function = self._loss

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        labels = kwargs["labels"] if "labels" in kwargs else self.signature.bind_partial(*args, **kwargs).arguments.get("labels")
        if labels is None or not self.model.training:
            return self.model_forward(*args, **kwargs)
        self.fused = True
        if self.softcap is not None:
            setattr(self.config, _SOFTCAP, None)
        try:
            made = self.model_forward(*args, **kwargs)
        finally:
            self.fused = False
            if self.softcap is not None:
                setattr(self.config, _SOFTCAP, self.softcap)
        if isinstance(made, tuple):
            return made[0], None, *made[2:]
        made.logits = None
        return made

    def _of_head(self, hidden: Any, target: Any = None, **options: Any) -> Any:
        """Logits where nothing is fused, else the hidden states; these and targets give the loss, in a call of the module that has the weight."""
        if target is not None:
            weight, bias = self.head.weight, self.head.bias
            return linear_cross_entropy(hidden, weight, target, linear_bias=bias, softcap=self.softcap, **options, **self.options)
        if not self.fused:
            return self.head_forward(hidden)
        self.hidden = hidden
        return hidden

    def _loss(self, logits: Any, labels: Any, vocab_size: int | None = None, **given: Any) -> Any:
        if not self.fused:
            return self.original(logits, labels, vocab_size=vocab_size, **given)
        hidden, self.hidden = self.hidden, None
        if logits is not hidden:
            raise Unsupported("hf.patch: the model changes its logits before the loss, wants a model whose loss takes what its head returns")
        known = {name: given[name] for name in ("num_items_in_batch", "ignore_index", "shift_labels") if name in given}
        return causal_lm_loss(lambda target, **options: self.head(hidden, target.to(hidden.device), **options), labels, **known)

    def undo(self) -> None:
        for name in _REPLACED:
            vars(self.model).pop(name, None)
        vars(self.model).update(self.own)
        vars(self.head).pop("forward", None)


def patch(model: Any, **options: Any) -> Any:
    """Computes the loss of a causal language model by :func:`numba_baracuda.torch.linear_cross_entropy`, until :func:`unpatch`; returns the model.

    ``model`` is one of transformers, or any module with ``lm_head`` or ``get_output_embeddings()``, an ``nn.Linear``, and a ``loss_function`` that is
    transformers' ``ForCausalLMLoss``. While it trains and is given ``labels``, its forward returns the same loss and no logits (None): labels are
    shifted, ``ignore_index``, ``shift_labels`` and ``num_items_in_batch`` count as there, and ``final_logit_softcapping`` of its config is applied.
    Where every label is ignored the loss is 0. In evaluation and without labels nothing changes. The loss is computed in a call of the head, which
    owns the weight; tied weights get both gradients. ``options`` go to the function, such as ``chunk="lean"``.

    A model whose forward changes logits between head and loss in another way is refused when it is called. Unpatch a model before it is copied: a
    copy of a patched one calls the original. Raises ``InvalidProblem`` for other modules.
    """
    get = getattr(model, "get_output_embeddings", None)
    head = get() if get is not None else getattr(model, "lm_head", None)
    if not isinstance(head, torch.nn.Linear) or not head.weight.is_floating_point():
        raise InvalidProblem(f"hf.patch: the model's head is a {type(head).__name__}, wants an nn.Linear of floating dtype")
    unpatch(model)
    original = getattr(model, "loss_function", None)
    if original is None or getattr(original, "__name__", "") != _LOSS:
        raise InvalidProblem(f"hf.patch: the model's loss_function is {getattr(original, '__name__', original)!r}, wants {_LOSS}")
    vars(model)["_numba_baracuda_patch"] = _Patch(model, head, original, options)
    return model


def unpatch(model: Any) -> Any:
    """Undoes :func:`patch`; returns the model."""
    made = vars(model).pop("_numba_baracuda_patch", None)
    if made is not None:
        made.undo()
    return model
