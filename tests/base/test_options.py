"""Options: defaults, precedence, checking, and what goes into a cache key."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import pytest

from stator.base import announce
from stator.base.errors import InvalidOption, UnknownMode, UnknownOption
from stator.base.options import MODES, OPTIONS, Options


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    announce.forget()
    for known in OPTIONS.values():
        monkeypatch.delenv(known.environment, raising=False)


def test_every_option_has_a_sentence_and_a_valid_default() -> None:
    assert len(OPTIONS) >= 11
    for known in OPTIONS.values():
        assert known.sentence.endswith(".")
        assert known.check(known.default) == known.default
    assert Options.from_user() == Options()


def test_the_stronger_source_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_THREADS", "3")
    monkeypatch.setenv("STATOR_AUTOTUNE", "0")
    assert Options.from_user().threads == 3
    assert Options.from_user(options={"threads": 5}).threads == 5
    assert Options.from_user("max-autotune").autotune is True
    assert Options.from_user("max-autotune", {"autotune": False}).autotune is False


def test_dynamic_is_three_valued() -> None:
    assert [Options.from_user(dynamic=d).dynamic for d in (None, True, False)] == ["auto", "always", "never"]


@pytest.mark.parametrize("wrong, meant", [("numerix", "numerics"), ("treads", "threads")])
def test_unknown_option_names_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(UnknownOption, match=f"(?s){wrong}.*did you mean '{meant}'"):
        Options.from_user(options={wrong: 1})


def test_unknown_mode_names_the_nearest() -> None:
    with pytest.raises(UnknownMode, match="did you mean 'max-autotune'"):
        Options.from_user("max-autotun")
    with pytest.raises(UnknownMode, match="valid: default, max-autotune"):
        Options.from_user("zzz")


@pytest.mark.parametrize(
    "name, value",
    [
        ("numerics", "exact"),
        ("threads", "2"),
        ("threads", True),
        ("threads", -1),
        ("strict", 1),
        ("activation_memory_budget", 1.5),
        ("recompile_limit", 0),
        ("logs", "timing,nonsense"),
    ],
)
def test_wrong_values_are_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=name):
        Options.from_user(options={name: value})


@pytest.mark.parametrize("name, text", [("STRICT", "maybe"), ("THREADS", "many"), ("NUMERICS", "exact")])
def test_wrong_environment_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(f"STATOR_{name}", text)
    with pytest.raises(InvalidOption, match=name.lower()):
        Options.from_user()


def test_values_are_taken_in_their_own_type() -> None:
    options = Options.from_user(options={"activation_memory_budget": 1, "cache_dir": Path("here")})
    assert (type(options.activation_memory_budget), options.cache_dir) == (float, "here")


def test_key_changes_with_exactly_the_options_that_are_in_it() -> None:
    other = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v / 2, str: lambda v: v + "x"}
    for name, known in OPTIONS.items():
        changed = dataclasses.replace(Options(), **{name: other[type(known.default)](known.default)})
        assert (changed.key() != Options().key()) is known.in_key, name


def test_modes_only_set_options_to_valid_values() -> None:
    for changes in MODES.values():
        for name, value in changes.items():
            assert OPTIONS[name].check(value) == value


def test_options_are_frozen_and_the_cache_root_follows_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().threads = 2  # type: ignore[misc]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Options().cache_root() == tmp_path / "stator"
    assert Options(cache_dir=str(tmp_path / "mine")).cache_root() == tmp_path / "mine"


@pytest.mark.parametrize("name", ["XDG_CACHE_HOME", "HOME"])
@pytest.mark.parametrize("value", ["", "relative"])
def test_a_home_that_is_no_absolute_path_is_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(name, value)
    root = Options().cache_root()
    assert root.is_absolute() and Path.cwd() not in root.parents
    assert (root.parent == Path(tempfile.gettempdir())) is (name == "HOME")
