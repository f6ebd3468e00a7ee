from collections.abc import Callable

import pytest

from grpodoctor.hooks.ranks import exchange as rank_exchange
from grpodoctor.hooks.ranks.exchange import RankExchange, RankInfo
from grpodoctor.runs.recording import recorder


@pytest.fixture(autouse=True)
def no_step_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step waits for the line of the previous one, and closing for all, on a busy machine too."""
    for name in ("START_WAIT_SECONDS", "LINE_WAIT_SECONDS", "CLOSE_WAIT_SECONDS", "STALL_SECONDS"):
        monkeypatch.setattr(recorder, name, 60.0)


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
