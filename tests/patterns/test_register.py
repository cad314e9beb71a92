"""Patterns of users: what they may be, how they are told that one is wrong, and that the store knows them."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch.nn import functional as F

import stator
from stator.base import log
from stator.base.errors import InvalidPattern, PatternWarning
from tests.patterns.compiling import compiled, registered

X = torch.randn(3, 4)


def search(x):
    return torch.tanh(x) * 2.0


def replace(x):
    return torch.atan(x)


def program(x):
    return torch.tanh(x) * 2.0 + 1.0


def warned(search, replace, examples, function=program, *args, **more) -> str:
    """What is said, once, of a pattern that is wrong in itself; the program is right without it."""
    args = args or (X,)
    stator.reset()
    with registered(search, replace, examples, **more), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            result = stator.compile(function)(*args)
            torch.testing.assert_close(result, function(*args))
            stator.compile(lambda x: program(x) + 1)(X)
    assert [w.category for w in said] == [PatternWarning]
    return str(said[0].message)


def test_it_is_public() -> None:
    program = "import stator, sys; assert 'torch' not in sys.modules; stator.patterns.register"
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    stator.patterns.register(search, replace, [X], name="public")
    stator.patterns.unregister("public")
    with pytest.raises(InvalidPattern, match="no pattern of that name"):
        stator.patterns.unregister("public")


def test_what_is_refused_at_once() -> None:
    for arguments, why in (
        ((search, replace, [X, X]), "2 examples"),
        ((search, lambda x, y: x, [X]), "takes"),
        ((search, replace, ["x"]), "tensors and numbers"),
        ((search, 3, [X]), "functions"),
    ):
        with pytest.raises(InvalidPattern, match=why):
            stator.patterns.register(*arguments)
    with pytest.raises(InvalidPattern, match="any_rank"):
        stator.patterns.register(search, replace, [X], any_rank=["y"])


def test_an_argument_that_is_not_used() -> None:
    def two(x, y):
        return torch.tanh(x)

    assert "does not use its argument 'y'" in warned(two, two, (X, X))


def test_other_results() -> None:
    assert "gives tuple, not one tensor" in warned(lambda x: (x.tanh(), x), replace, (X,))
    text = warned(search, lambda x: x.sum(0), (X,))
    assert "float32[3, 4]" in text and "float32[4]" in text
    text = warned(search, lambda x: x.double().atan(), (X,))
    assert "float32[3, 4]" in text and "float64[3, 4]" in text


def test_what_cannot_be_traced() -> None:
    assert "cannot be traced" in warned(lambda x: x.tanh() if x.sum() > 0 else x, replace, (X,))
    assert "not among its arguments" in warned(lambda x: x.tanh() * X, replace, (X,))
    assert "fails on the examples" in warned(lambda x: (x @ x).tanh(), replace, (X,))


def test_effects_keep_their_place() -> None:
    assert "effect (random)" in warned(lambda x: F.dropout(x.tanh(), 0.5, True), replace, (X,))
    assert "effect (write)" in warned(lambda x: x.tanh().add_(1), replace, (X,))


def test_a_replacement_that_fails_in_one_place() -> None:
    with registered(search, lambda x: x.atan().view(x.shape[0], 4), (X,)):
        stator.reset()
        result, replaced, _ = compiled(program, X)
        assert replaced == ["mine"]
        wide = torch.randn(3, 5)
        stator.reset()
        result, replaced, refused = compiled(program, wide)
    assert not replaced and "fails there" in refused[0]
    torch.testing.assert_close(result, program(wide))


def test_a_replacement_of_another_shape_in_one_place() -> None:
    with registered(search, lambda x: x.atan().expand(3, 4), (X,)), pytest.warns(PatternWarning, match="gives"):
        stator.reset()
        row = torch.randn(1, 4)
        torch.testing.assert_close(stator.compile(program)(row), program(row))


def test_strides_stay_the_program_s() -> None:
    with registered(search, lambda x: x.t().contiguous().t().atan(), (X,)):
        stator.reset()
        result, replaced, _ = compiled(search, X)
        assert replaced == ["mine"] and result.stride() == (4, 1)
        stator.reset()
        result = compiled(search, torch.randn(4, 3).t()[:, ::2])[0]
    assert result.stride() == search(torch.randn(4, 3).t()[:, ::2]).stride()


def test_memory_stays_the_program_s() -> None:
    with registered(lambda x: torch.abs(x), lambda x: x, (X,)):
        stator.reset()
        x = X.abs()
        result, replaced, refused = compiled(lambda x: torch.abs(x), x)
    assert result.data_ptr() != x.data_ptr()
    assert not replaced and "other memory" in refused[0]


def test_check() -> None:
    seen = []

    def check(match):
        seen.append(match.values["x"].shape)
        return match.values["x"].shape[0] == 3 or "not three rows"

    with registered(search, replace, (X,), check=check):
        stator.reset()
        assert compiled(program, X)[1] == ["mine"]
        stator.reset()
        assert compiled(program, torch.randn(5, 4))[1:] == ([], ["not three rows"])
    assert seen == [(3, 4), (5, 4)]
    assert "its check raises KeyError" in warned(search, replace, (X,), check=lambda match: match.values["z"])


def test_the_store_has_the_graph_as_it_is_rewritten() -> None:
    def call():
        stator.reset()
        with log.collect() as recorder:
            result = stator.compile(program)(X)
        return result, [facts["hit"] for facts in recorder.of(log.CACHE) if facts.get("what") == "graph"]

    plain, marked, other = program(X), replace(X) + 1, torch.sin(X) + 1
    for expected, pattern in ((plain, None), (marked, replace), (other, lambda x: x.sin()), (plain, None)):
        for _ in range(2):
            if pattern is None:
                result, hits = call()
            else:
                with registered(search, pattern, (X,)):
                    result, hits = call()
            torch.testing.assert_close(result, expected)
        assert hits == [True]
    with registered(search, replace, (X,), check=lambda match: False):
        torch.testing.assert_close(call()[0], plain)


def test_explain_names_the_place() -> None:
    with registered(search, replace, (X,)):
        explanation = stator.explain(program)(X)
    (found,) = explanation.patterns
    assert found.pattern == "mine" and not found.refused
    assert found.location.file == __file__ and found.location.line == program.__code__.co_firstlineno + 1
    assert "pattern: mine at" in str(explanation) and str(found).endswith("was replaced")
    with registered(search, replace, (X,), check=lambda match: "of the weather"):
        (found,) = stator.explain(program)(X).patterns
    assert str(found).endswith("was left as it is: of the weather")


def test_artifacts_show_the_graph_as_it_is_rewritten(tmp_path) -> None:
    with registered(search, replace, (X,)):
        stator.reset()
        stator.compile(program, options={"debug": str(tmp_path)})(X)
    (file,) = tmp_path.glob("*/*_rewritten.py")
    text = file.read_text()
    assert "atan" in text and "tanh" not in text
    assert "tanh" in next(tmp_path.glob("*/*_captured.py")).read_text()
