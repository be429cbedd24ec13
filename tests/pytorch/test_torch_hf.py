"""numba_baracuda.torch.hf: the losses of patched models against those of the models themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch_cases as cases
from torch.nn import functional as F

import numba_baracuda as nb
from numba_baracuda.torch import hf

VOCABULARY = 19


def ForCausalLMLoss(logits: Any, labels: Any, vocab_size: int, num_items_in_batch: Any = None, ignore_index: int = -100, **others: Any) -> Any:
    """As transformers has it."""
    shifted = others.get("shift_labels")
    shifted = F.pad(labels, (0, 1), value=ignore_index)[..., 1:] if shifted is None else shifted
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = F.cross_entropy(logits.float().reshape(-1, vocab_size), shifted.reshape(-1), ignore_index=ignore_index, reduction=reduction)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


class Decoder(torch.nn.Module):
    """What patch() asks of a model, with tied weights and a softcap."""

    loss_function = staticmethod(ForCausalLMLoss)

    def __init__(self, softcap: float | None = None, scale: float | None = None) -> None:
        super().__init__()
        self.config, self.scale = SimpleNamespace(final_logit_softcapping=softcap), scale
        self.embedding, self.lm_head = torch.nn.Embedding(VOCABULARY, 8), torch.nn.Linear(8, VOCABULARY, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, input_ids: Any, labels: Any = None, **kwargs: Any) -> Any:
        logits = self.lm_head(self.embedding(input_ids).cumsum(1))
        if self.config.final_logit_softcapping is not None:
            logits = self.config.final_logit_softcapping * torch.tanh(logits / self.config.final_logit_softcapping)
        logits = logits if self.scale is None else logits * self.scale
        loss = None if labels is None else self.loss_function(logits=logits, labels=labels, vocab_size=VOCABULARY, **kwargs)
        return SimpleNamespace(loss=loss, logits=logits)


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, VOCABULARY, (2, 6), generator=torch.Generator().manual_seed(2)).to(cases.DEVICE)
    labels = ids.clone()
    labels[0, :3] = -100
    return ids, labels


def compare(model: Any, **given: Any) -> None:
    """The loss and all gradients of the model and of a patched copy."""
    ids, labels = tokens()
    labels[labels == -100] = given.get("ignore_index", -100)
    found = []
    for each in (model, hf.patch(copy.deepcopy(model), chunk=4)):
        made = each(ids, labels=labels, **given)
        made.loss.backward()
        found.append([made.loss.detach(), *(p.grad for p in each.parameters())])
    assert made.logits is None
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_the_loss_of_a_stub(softcap: float | None) -> None:
    torch.manual_seed(0)
    model, (_, labels) = Decoder(softcap).to(cases.DEVICE), tokens()
    for given in ({}, {"num_items_in_batch": 3}, {"num_items_in_batch": torch.tensor(5)}, {"ignore_index": 4}, {"shift_labels": labels.roll(-1, 1)}):
        model.zero_grad()
        compare(model, **given)
    assert model.config.final_logit_softcapping == softcap


def test_where_nothing_changes() -> None:
    """In evaluation, without labels, and after unpatch."""
    torch.manual_seed(0)
    model, (ids, labels) = Decoder().to(cases.DEVICE), tokens()
    wanted, before = model(ids, labels=labels), dict(vars(model))
    hf.patch(hf.patch(model))
    assert torch.equal(model(ids).logits, wanted.logits) and model(ids).loss is None
    assert model(ids, labels).logits is None
    model.eval()
    made = model(ids, labels=labels)
    assert torch.equal(made.logits, wanted.logits) and torch.equal(made.loss, wanted.loss)
    assert hf.unpatch(hf.unpatch(model)) is model
    model.train()
    assert torch.equal(model(ids, labels=labels).logits, wanted.logits)
    assert vars(model).keys() == before.keys() and "forward" not in vars(model.lm_head)


def test_refused() -> None:
    ids, labels = tokens()
    with pytest.raises(nb.Unsupported, match=r"hf\.patch: the model changes its logits before the loss"):
        hf.patch(Decoder(scale=2.0).to(cases.DEVICE))(ids, labels=labels)
    with pytest.raises(nb.InvalidProblem, match=r"hf\.patch: the model's head is a NoneType, wants an nn\.Linear"):
        hf.patch(torch.nn.Linear(2, 2))
    other: Callable[..., Any] = Decoder()
    other.loss_function = F.cross_entropy  # type: ignore[attr-defined]
    with pytest.raises(nb.InvalidProblem, match=r"hf\.patch: the model's loss_function is 'cross_entropy', wants ForCausalLMLoss"):
        hf.patch(other)


@pytest.mark.parametrize("name", ["Llama", "GPT2", "Gemma2"])
def test_models_of_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    size: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    size |= {"num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    size |= {"final_logit_softcapping": 1.5} if name == "Gemma2" else {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0} if name == "GPT2" else {}
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**size)
    model = getattr(transformers, "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")(config).to(cases.DEVICE).train()
    compare(model)
    model.zero_grad()
    compare(model, num_items_in_batch=torch.tensor(4))
    ids, labels = tokens()
    loss, logits, *_ = hf.patch(model)(ids, labels=labels, return_dict=False)
    assert loss.requires_grad and logits is None
    assert hf.unpatch(model)(ids, labels=labels).logits.shape == (2, 6, VOCABULARY)
