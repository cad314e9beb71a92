"""`model.generate` with a compiled forward: eager's tokens, and two versions are enough for a growing cache."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from tests.architectures.table import TABLE

LENGTH = 12
PROMPT = 7
NAMES = ("gpt2", "llama", "qwen3", "gemma2", "opt", "t5", "bart", "whisper")

#: The name of what is generated from, where it is not the ids of the text so far.
ENCODED = {"whisper": "input_features"}


def model_of(name: str) -> Any:
    """A tiny model that never ends a text by itself."""
    model = TABLE[name].build()
    settings = model.generation_config
    settings.eos_token_id = settings.forced_eos_token_id = None
    settings.pad_token_id, settings.decoder_start_token_id = 0, 0
    return model


def given(name: str, model: Any, length: int = PROMPT) -> dict[str, torch.Tensor]:
    """What to generate from."""
    inputs = TABLE[name].inputs(model.config, torch.Generator().manual_seed(length))
    kind = ENCODED.get(name, "input_ids")
    return {kind: inputs[kind][:1] if name in ENCODED else inputs[kind][:1, :length]}


def generate(model: Any, inputs: dict[str, torch.Tensor], length: int = LENGTH, **rest: Any) -> torch.Tensor:
    tokens: torch.Tensor = model.generate(**inputs, max_new_tokens=length, do_sample=False, **rest)
    return tokens


@torch.no_grad()
def compare(name: str, compiled: Any, rest: dict[str, Any], prompts: tuple[int, ...], limit: int) -> None:
    """Both generate the same, with at most so many graphs for all prompts."""
    eager = model_of(name)
    with log.collect() as found:
        for length in prompts:
            inputs = given(name, eager, length)
            for count in (LENGTH, LENGTH + 4):
                expected = generate(eager, inputs, count, **rest)
                assert torch.equal(generate(compiled, inputs, count, **rest), expected)
    graphs = len(found.of(log.GRAPH))
    assert 1 <= graphs <= limit, f"{graphs} graphs: {found.of(log.RECOMPILE)}"


def with_forward(name: str) -> Any:
    model = model_of(name)
    model.forward = stator.compile(model.forward, fullgraph=True, options={"strict": True})
    return model


@pytest.mark.parametrize("name", NAMES)
def test_greedy(name: str) -> None:
    compare(name, with_forward(name), {}, (PROMPT,), limit=2)


@pytest.mark.parametrize(("name", "limit"), [("llama", 3), ("t5", 4)])
def test_prompts_of_other_lengths(name: str, limit: int) -> None:
    compare(name, with_forward(name), {}, (PROMPT, 5, 9), limit)


def test_a_compiled_model() -> None:
    model = stator.compile(copy.deepcopy(model_of("gpt2")), fullgraph=True, options={"strict": True})
    compare("gpt2", model, {}, (PROMPT,), limit=2)


def test_static_cache() -> None:
    compare("llama", with_forward("llama"), {"cache_implementation": "static"}, (PROMPT,), limit=4)
