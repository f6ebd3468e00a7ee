from collections.abc import Callable

import pytest

from grpodoctor.hooks.ranks import exchange as rank_exchange
from grpodoctor.hooks.ranks.exchange import RankExchange, RankInfo


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[RankExchange]]:
    """The connections of several ranks in one process, over one of torch's stores."""
    from torch.distributed import HashStore

    def connect(world: int) -> list[RankExchange]:
        store = HashStore()
        connected = []
        for rank in range(world):
            monkeypatch.setattr(rank_exchange, "_connections", iter([7]))
            connected.append(RankExchange(store, RankInfo(rank, world)))
        return connected

    return connect
