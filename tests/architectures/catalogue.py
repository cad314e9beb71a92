"""All architectures: the table, and what further files enter in it."""

from __future__ import annotations

from tests.architectures import table_other, table_text
from tests.architectures.table import TABLE

FILES = (table_text, table_other)

__all__ = ["FILES", "TABLE"]
