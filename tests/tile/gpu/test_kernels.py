"""Well-known kernels, as users write them, run thread by thread: the tests are those of `tests.tile.kernels`."""

from __future__ import annotations

from tests.tile.kernels.test_attention import *  # noqa: F403
from tests.tile.kernels.test_norms import *  # noqa: F403
from tests.tile.kernels.test_products import *  # noqa: F403
from tests.tile.kernels.test_rows import *  # noqa: F403
from tests.tile.kernels.test_rows_ahead import *  # noqa: F403
