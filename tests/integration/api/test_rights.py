"""The chart's roles on a real API server: what the code asks for is allowed to the operator, and nothing else is."""

import json
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import yaml
from kubernetes import client, config
from shadowrun_operator.cluster.client import ApiRefusal, Cluster

from tests.cluster.base import Cluster as TestCluster
from tests.integration.api.connection import connected
from tests.unit.cluster_io import rights
from tests.unit.cluster_io.api_server import Right
from tests.unit.surfaces.test_chart import CHART

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
BEYOND = (
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"),
    ("", "serviceaccounts", "impersonate"),
    ("", "users", "impersonate"),
    ("", "groups", "impersonate"),
    ("certificates.k8s.io", "signers", "approve"),
)
WIDE = {("", "nodes"), (rights.GATEWAY_API, "gateways"), (rights.GATEWAY_API, "gatewayclasses")}
"""What belongs to no namespace of the runs."""


@dataclass(frozen=True)
class Installed:
    """The roles of the chart, in a namespace of their own. `watched` is one of the runs' namespaces, `other` none."""

    account: str
    namespace: str
    watched: str
    other: str


@pytest.fixture(scope="module", params=[False, True], ids=["everywhere", "in named namespaces"])
def installed(request: pytest.FixtureRequest, cluster: TestCluster) -> Iterator[Installed]:
    tag = uuid.uuid4().hex[:8]
    own, watched, other = (f"rights-{part}-{tag}" for part in ("own", "watched", "other"))
    options = [
        "--set=gatewayAPI.enabled=true",
        "--set=replicas=2",
        "--set=crds.enabled=false",
        "--set=rbac.aggregate=false",
    ]
    options += [f"--set=watchNamespaces={{{watched}}}"] if request.param else []
    found = yaml.safe_load_all(cluster.helm("template", tag, str(CHART), f"--namespace={own}", *options))
    parts = [item for item in found if item and (item["kind"].startswith(("Role", "ClusterRole", "ServiceAcc")))]
    (account,) = (item["metadata"]["name"] for item in parts if item["kind"] == "ServiceAccount")
    for name in (own, watched, other):
        cluster.kubectl("create", "namespace", name)
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(parts))
    yield Installed(account, own, watched, other)
    wide = [item for item in parts if item["kind"].startswith("ClusterRole")]
    cluster.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(wide))
    cluster.kubectl("delete", "namespace", own, watched, other, "--wait=false")


@pytest.fixture(scope="module")
def api(cluster: TestCluster) -> Iterator[client.ApiClient]:
    settings = client.Configuration()
    config.load_kube_config(str(cluster.kubeconfig_path), client_configuration=settings)  # type: ignore[no-untyped-call]
    settings.proxy, settings.connection_pool_maxsize = None, 8
    with client.ApiClient(settings) as connected:
        yield connected


@pytest.fixture(scope="module")
def everything(cluster: TestCluster) -> frozenset[Right]:
    """Every verb on every resource that this API server serves, subresources included, and a few verbs of its own."""
    asked = rights.of_the_code() | rights.of_the_lease()
    served = {(group, resource) for group, resource, _ in asked}
    groups = json.loads(cluster.kubectl("get", "--raw", "/apis"))["groups"]
    versions = [("", "/api/v1")]
    versions += [(group["name"], f"/apis/{group['preferredVersion']['groupVersion']}") for group in groups]
    for group, path in versions:
        found = json.loads(cluster.kubectl("get", "--raw", path))["resources"]
        served |= {(group, resource["name"]) for resource in found}
    assert {("", "pods/exec"), ("", "nodes/status"), ("apps", "deployments/scale")} <= served
    return frozenset({(*one, verb) for one in served for verb in VERBS} | set(BEYOND))


def allowed(
    api: client.ApiClient,
    of: Installed,
    asked: Iterable[Right],
    namespace: str,
    *,
    name: str | None = None,
    account: str = "",
) -> set[Right]:
    """Those of them that the API server's own authorizer allows the operator, or another account, in a namespace."""
    reviews = client.AuthorizationV1Api(api)
    user = f"system:serviceaccount:{of.namespace}:{account or of.account}"
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{of.namespace}"]

    def is_allowed(right: Right) -> bool:
        group, resource, verb = right
        whole, _, part = resource.partition("/")
        at = client.V1ResourceAttributes(
            group=group, resource=whole, subresource=part or None, verb=verb, namespace=namespace, name=name
        )
        spec = client.V1SubjectAccessReviewSpec(user=user, groups=groups, resource_attributes=at)
        asked = client.V1SubjectAccessReview(spec=spec)
        answer = reviews.create_subject_access_review(asked, _request_timeout=20)
        return bool(answer.status and answer.status.allowed)

    listed = list(asked)
    with ThreadPoolExecutor(8) as pool:
        return {right for right, yes in zip(listed, pool.map(is_allowed, listed), strict=True) if yes}


def given_by_the_chart(
    api: client.ApiClient, of: Installed, everything: frozenset[Right], namespace: str
) -> set[Right]:
    """What the operator may do there and an account without any role may not."""
    return allowed(api, of, everything, namespace) - allowed(api, of, everything, namespace, account="default")


def test_in_a_namespace_of_runs_all_that_the_code_asks_for_is_allowed_and_nothing_else(
    api: client.ApiClient, installed: Installed, everything: frozenset[Right]
) -> None:
    given = given_by_the_chart(api, installed, everything, installed.watched)
    needed = rights.of_the_code()
    assert (sorted(needed - given), sorted(given - needed)) == ([], [])


def test_elsewhere_it_is_the_same_or_nothing_but_reading_what_has_no_namespace(
    api: client.ApiClient, installed: Installed, everything: frozenset[Right], request: pytest.FixtureRequest
) -> None:
    named = "named" in request.node.name
    needed = {r for r in rights.of_the_code() if not named or (r[:2] in WIDE)}
    assert given_by_the_chart(api, installed, everything, installed.other) == needed


def test_one_lease_and_no_other_may_be_read_and_changed(api: client.ApiClient, installed: Installed) -> None:
    leases = {("coordination.k8s.io", "leases", verb) for verb in VERBS}
    assert allowed(api, installed, leases, installed.namespace, name=installed.account) == rights.of_the_lease()
    others = allowed(api, installed, leases, installed.namespace, name="another")
    assert {verb for _, _, verb in others} == {"create"}, "a right to create can't be narrowed to a name"
    assert not allowed(api, installed, leases, installed.watched, name=installed.account)


@pytest.fixture
async def as_operator(cluster: TestCluster, installed: Installed) -> AsyncIterator[Cluster]:
    """The operator's own client, with the operator's rights and no others."""
    user = f"system:serviceaccount:{installed.namespace}:{installed.account}"
    one = Cluster(await connected(cluster.kubeconfig_path, user=user))
    yield one
    await one.close()


async def test_its_client_writes_what_runs_need_and_is_refused_the_rest(
    as_operator: Cluster, installed: Installed
) -> None:
    at = {"namespace": installed.watched}
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", **at}, "data": {"a": "b"}}
    await as_operator.apply(kept)
    await as_operator.merge({**kept, "data": {"c": "d"}})
    assert [item["data"] for item in await as_operator.list("ConfigMap", installed.watched) if item["data"].get("c")]
    await as_operator.delete("ConfigMap", installed.watched, "x")
    port = {"protocol": "TCP", "port": 8000, "targetPort": 8000}
    await as_operator.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", **at}, "spec": {"ports": [port]}}
    )
    assert await as_operator.list("Node"), "labels of nodes are read"
    for kind, namespace, name in (("StatefulSet", installed.watched, "x"), ("Pod", installed.watched, "x")):
        with pytest.raises(ApiRefusal) as refused:
            await as_operator.delete(kind, namespace, name)
        assert refused.value.status == 403
    with pytest.raises(ApiRefusal) as refused:
        await as_operator.merge({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "namespace": ""}})
    assert refused.value.status == 403
