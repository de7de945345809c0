"""The entry of a pool."""

import pytest

from stoker.proto import limits
from stoker.worker.main import main


@pytest.mark.parametrize("workers", [0, -1, limits.LIST_ITEMS_MAX + 1])
def test_number_of_workers_out_of_range_is_refused(workers: int) -> None:
    with pytest.raises(ValueError, match="workers"):
        main("tasks:app", socket="/nowhere.sock", workers=workers, name="pool")
