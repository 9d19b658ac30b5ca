"""A real API server tells a kind that it does not know from one of which there is nothing."""

import pytest
from shadowrun_operator.cluster.client import KINDS, Cluster
from shadowrun_operator.manifests import groups
from shadowrun_operator.manifests.names import Manifest

from tests.integration.api.conftest import NAMESPACE

pytestmark = [pytest.mark.operator, pytest.mark.e2e]


@pytest.mark.parametrize(
    ("version", "resource", "found"),
    [
        ("leaderworkerset.shadowrun.test/v1", "leaderworkersets", None),  # whether or not the real one is installed
        ("apps/v9", "statefulsets", None),
        ("apps/v1", "leaderworkersets", None),
        ("apps/v1", "statefulsets", []),
    ],
)
async def test_a_kind_that_is_not_served_is_none(
    api: Cluster, monkeypatch: pytest.MonkeyPatch, version: str, resource: str, found: list[Manifest] | None
) -> None:
    monkeypatch.setitem(KINDS, groups.KIND, (version, resource))
    assert await api.list_if_served(groups.KIND, NAMESPACE, selector="shadowrun.dev/run=x") == found
    assert await api.get(groups.KIND, NAMESPACE, "big") is None
