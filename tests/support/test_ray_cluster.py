"""A Ray cluster that cannot be reached is one line, at once."""

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.support.ray_cluster import connected


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "no such host:x"])
def test_an_unreachable_cluster_is_an_immediate_error(address: str) -> None:
    with pytest.raises(ConfigError, match="no Ray cluster"), connected(address, "a test"):
        pytest.fail("there is no cluster")
