"""Who else could put files into a folder: what is loaded or executed from there would be theirs.

`objection` walks the whole way from the root, links included, and gives the first reason in words. Others can put
files where a folder on the way belongs to them (its owner may rename what is below) or is writable for them; a sticky
folder such as /tmp protects what is already in it, so it may be on the way but not be the end of it. A group that has
no other member is no other. Neighbours: `store.py` asks before it reads or writes, `temporary.py` before it sweeps.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: As many links on one way as Linux follows.
_LINKS = 40


def objection(path: Path, user: int | None = None) -> str | None:
    """Why files at `path` may be somebody else's; None where they are `user`'s (by default ours) or the system's.

    Parts of the way that do not exist are no objection: whoever makes them asks again.
    """
    user = os.geteuid() if user is None else user
    end = path.absolute()
    try:
        for place, found in _way(end):
            if why := _objection(place, found, user, last=place == end):
                return why
    except OSError as error:
        return f"{path} cannot be examined ({error.strerror or error})"
    return None


def writable_by_others(found: os.stat_result, user: int) -> str | None:
    """Whose a file or folder is, or who may write to it, if not `user` and the system alone."""
    if found.st_uid not in (0, user):
        return f"belongs to {_user(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH:
        return "is writable for everybody"
    if found.st_mode & stat.S_IWGRP and not (_private(found.st_gid, user) or _private(found.st_gid, 0)):
        return f"is writable for the group {_group(found.st_gid)}"
    return None


def _objection(place: Path, found: os.stat_result, user: int, last: bool) -> str | None:
    if stat.S_ISLNK(found.st_mode):  # the mode of a link means nothing
        return None if found.st_uid in (0, user) else f"{place} belongs to {_user(found.st_uid)}"
    why = writable_by_others(found, user)
    if why is None or (found.st_mode & stat.S_ISVTX and found.st_uid in (0, user) and not last):
        return None
    return f"{place} {why}"


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link that reaching `path` goes through, down to what exists."""
    parts, current, links = deque(path.parts), Path("/"), 0
    while parts:
        part = parts.popleft()
        current = current.parent if part == ".." else current / part
        try:
            found = os.lstat(current)
        except (FileNotFoundError, NotADirectoryError):
            return
        yield current, found
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            parts.extendleft(reversed(Path(os.readlink(current)).parts))
            current = current.parent


@cache
def _private(group: int, user: int) -> bool:
    """Whether a group is there for one user alone: it has the user's name and no member besides."""
    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == owner.pw_name and owner.pw_gid == group and set(found.gr_mem) <= {owner.pw_name}


def _user(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _group(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
