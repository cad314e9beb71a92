"""Whose folder it is: every way in which others could put a file somewhere, and the ways that only look like it."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from stator.base import trust
from stator.base.errors import CacheWarning
from stator.base.store import Store

SOMEBODY = os.geteuid() + 12345


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "a" / "b"
    made.mkdir(parents=True)
    return made


def test_a_folder_of_ours_is_trusted_and_one_of_another_user_is_not(folder: Path) -> None:
    assert trust.objection(folder) is None
    assert trust.objection(folder / "not" / "made" / "yet") is None
    why = trust.objection(folder, SOMEBODY)
    assert os.geteuid() == 0 or (why is not None and "belongs to" in why)


def test_the_mode_of_every_folder_on_the_way_counts(folder: Path) -> None:
    for place in (folder, folder.parent):
        before = place.stat().st_mode
        place.chmod(0o777)
        why = trust.objection(folder)
        assert why is not None and str(place) in why and "everybody" in why
        place.chmod(before)
    assert trust.objection(folder) is None


def test_a_sticky_folder_protects_what_is_in_it_but_takes_new_files(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert trust.objection(folder) is None
    folder.chmod(0o1777)
    assert trust.objection(folder) is not None


def test_a_group_counts_as_others_unless_it_is_the_users_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o775)
    for private in (False, True):
        monkeypatch.setattr(trust, "_private", lambda group, user, private=private: private)
        why = trust.objection(folder)
        assert (why is None) is private
        assert private or "for the group" in str(why)


def test_a_group_is_private_if_it_has_the_users_name_and_no_other_member(monkeypatch: pytest.MonkeyPatch) -> None:
    account = SimpleNamespace(pw_name="ada", pw_gid=1000)
    monkeypatch.setattr(pwd, "getpwuid", lambda user: account)
    rows = [("ada", [], 1000, True), ("ada", ["ada"], 1000, True), ("ada", ["bob"], 1000, False),
            ("staff", [], 1000, False), ("ada", [], 1001, False)]  # fmt: skip
    for name, members, primary, private in rows:
        trust._private.cache_clear()
        account.pw_gid = primary
        group = SimpleNamespace(gr_name=name, gr_mem=members)
        monkeypatch.setattr(grp, "getgrgid", lambda number, group=group: group)
        assert trust._private(1000, 1000) is private, (name, members, primary)
    trust._private.cache_clear()


def test_a_link_is_followed_and_its_own_folder_counts(tmp_path: Path) -> None:
    open_to_all, mine = tmp_path / "open", tmp_path / "mine"
    open_to_all.mkdir()
    mine.mkdir()
    (tmp_path / "link").symlink_to("mine")
    assert trust.objection(tmp_path / "link" / "cache") is None
    (open_to_all / "link").symlink_to(mine)
    (mine / "link").symlink_to(open_to_all / "sub" / ".." / "cache")
    (open_to_all / "sub").mkdir()
    open_to_all.chmod(0o777)
    for way in (open_to_all / "link", mine / "link"):
        why = trust.objection(way)
        assert why is not None and str(open_to_all) in why


def test_a_circle_of_links_is_no_way(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "cannot be examined" in str(trust.objection(tmp_path / "a" / "c"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_was_given_away(folder: Path) -> None:
    for place in (folder, folder.parent):
        os.chown(place, SOMEBODY, -1)
        assert "belongs to" in str(trust.objection(folder))
        os.chown(place, os.geteuid(), -1)


# -- what the store makes of it --------------------------------------------------------------------------------


def open_up(root: Path) -> list[Path]:
    """Each folder and file of a filled store, to be made writable for others in turn."""
    return [root, root / "entries", *(root / "entries").rglob("*")]


@pytest.mark.parametrize("place", range(4), ids=["root", "entries", "subfolder", "entry"])
def test_nothing_is_read_from_a_store_that_others_can_write_to(tmp_path: Path, place: int) -> None:
    root = tmp_path / "cache"
    Store(root).put("entry", b"theirs")
    assert len(open_up(root)) == 4
    opened = open_up(root)[place]
    opened.chmod(opened.stat().st_mode | 0o002)
    store = Store(root)
    with pytest.warns(CacheWarning, match="others can put files|is not used") as caught:
        assert store.get("entry") is None and store.path("entry") is None
        store.put("entry", b"mine")
        path = store.path("entry")
    assert len(caught) == 1, "one line a process"
    assert path is not None and path.read_bytes().startswith(b"mine")
    # An entry is replaced in place by ours; of a folder nothing is used, nor is anything left there.
    assert (root in path.parents) is (place == 3)


def test_nothing_that_the_store_makes_can_be_written_to_by_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Store(tmp_path / "some" / "cache").put("entry", b"data")
    finally:
        os.umask(before)
    for place in [tmp_path / "some", *(tmp_path / "some").rglob("*")]:
        assert place.stat().st_mode & 0o077 == 0, place


def test_a_folder_made_by_somebody_quicker_is_not_written_to(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    store = Store(root)
    assert store.get("entry") is None  # the folder was looked at: there is none
    (root / "entries" / "en").mkdir(parents=True)
    (root / "entries" / "en").chmod(0o777)
    with pytest.warns(CacheWarning, match="cannot be written"):
        store.put("entry", b"mine")
    assert not list(root.rglob("entry")) and store.get("entry") == b"mine"


def test_emptying_a_store_of_others_touches_nothing(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    Store(root).put("entry", b"data")
    root.chmod(0o777)
    with pytest.warns(CacheWarning):
        Store(root).clear()
    assert list(root.rglob("entry"))
