"""A slice of the table with a fixed seed; `python -m tests.capture.containers` runs all of it, and other seeds."""

from __future__ import annotations

import pytest

from tests.capture.containers.cases import attributes, cases
from tests.capture.containers.compare import check
from tests.capture.containers.refusals import explained
from tests.capture.containers.tables import LEFT_OUT, NAMESPACE, RECEIVERS, TEMPLATES

#: Share of the table that is run here.
SHARE = 0.04


@pytest.mark.parametrize("kind", RECEIVERS)
def test_it_does_what_python_does(kind: str) -> None:
    found, refused, count = [], [], 0
    for case in cases(seed=1, most=2, kinds=(kind,), share=SHARE):
        count += 1
        differences, reason = check(case)
        if differences:
            found.append(f"{case}\n    " + "\n    ".join(differences))
        if reason is not None and not explained(reason):
            refused.append(f"{case}\n    {reason}")
    assert count
    assert not found, "\n".join(found)
    assert not refused, "refused, and nobody says why:\n" + "\n".join(refused)


@pytest.mark.parametrize("kind", RECEIVERS)
def test_the_table_is_whole(kind: str) -> None:
    """Every public and special attribute of the type is tried, or left out with a reason."""
    for text in RECEIVERS[kind]:
        obj = eval(text, dict(NAMESPACE), {"t": None})
        assert set(dir(obj)) == set(attributes(kind)) | (set(dir(obj)) & LEFT_OUT.keys())
        assert type(obj).__name__ == kind or kind.startswith("dict_")


def test_the_table_is_large() -> None:
    assert sum(len(attributes(kind)) + len(TEMPLATES) for kind in RECEIVERS) > 10_000
    assert all(LEFT_OUT.values())


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from stator.capture.values.python.containers.lists import ListValue

    monkeypatch.setattr(ListValue, "m_copy", lambda self, tx, /: self)
    found = [check(case) for case in cases(seed=1, most=4, kinds=("list",), only="copy")]
    assert any(differences for differences, _ in found)
