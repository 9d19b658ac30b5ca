"""The operator as a user installs it, on the cluster, and a namespace of its own for every module of tests."""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from examples.demo.scenarios import PRODUCT, TAG, TRAFFIC
from tests.cluster.base import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.plugin import RunOnce, progress_shown
from tests.e2e.world import SHARED, Release, World


@pytest.fixture(scope="session")
def installed(request: pytest.FixtureRequest, cluster: Cluster, once: RunOnce) -> Cluster:
    """The cluster with our images on its nodes and the chart installed by Helm, once for all processes."""

    def install() -> None:
        with progress_shown(request.config):
            for image in (*PRODUCT, TRAFFIC):
                cluster.build_image(image.tag, REPOSITORY / image.dockerfile, REPOSITORY, image.target)
                cluster.load_docker_image(image.tag)
        helm_install(
            cluster,
            SHARED,
            f"--set=excludeNamespaces={{{','.join(own_namespaces(once))}}}",
            "--set=gatewayAPI.enabled=true",
        )
        # The tag stays when the content changes: only a restart makes sure that the pod runs what was just built.
        cluster.kubectl("-n", SHARED.namespace, "rollout", "restart", SHARED.operator)
        until_rolled_out(cluster, SHARED)

    once("installed", install)
    return cluster


def own_namespaces(once: RunOnce) -> list[str]:
    """Namespaces with an operator of their own, known before the other one is told to leave them alone."""
    return [f"own-{once.identity}-{number}" for number in (1, 2, 3)]


def helm_install(cluster: Cluster, release: Release, *options: str) -> None:
    tags = [f"--set=image.{part}.tag={TAG}" for part in ("operator", "mirror", "capture")]
    chart = str(REPOSITORY / "charts" / "shadowrun")
    line = ["upgrade", "--install", release.name, chart, f"--namespace={release.namespace}", "--create-namespace"]
    cluster.helm(*line, *tags, *options, timeout=120)


def until_rolled_out(cluster: Cluster, release: Release) -> None:
    cluster.kubectl("-n", release.namespace, "rollout", "status", release.operator, "--timeout=120s", timeout=130)


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, installed: Cluster) -> Iterator[World]:
    """A namespace of its own with a primary, named after the module."""
    name = re.sub("[^a-z0-9]+", "-", request.module.__name__.rsplit(".", 1)[-1].removeprefix("test_"))[:40].strip("-")
    one = World(installed, f"e2e-{name}-{uuid.uuid4().hex[:4]}")  # an earlier one may still be on its way out
    one.create()
    try:
        yield one
    finally:
        one.delete()


def for_one_namespace(namespace: str) -> tuple[str, ...]:
    """Options of a release beside the one that all others share."""
    return (f"--set=watchNamespaces={{{namespace}}}", "--set=crds.enabled=false", "--set=rbac.aggregate=false")


@contextmanager
def world_with_operator(cluster: Cluster, namespace: str) -> Iterator[World]:
    """A namespace and an operator for it alone, which may be killed while other modules go on."""
    one = World(cluster, namespace, Release(f"{namespace}-shadowrun", namespace))
    helm_install(cluster, one.release, *for_one_namespace(namespace))
    try:
        until_rolled_out(cluster, one.release)
        one.add_primaries("chat")
        yield one
    finally:
        try:
            one.delete_runs()
        finally:
            cluster.helm("uninstall", one.release.name, f"--namespace={namespace}", timeout=60)
            cluster.kubectl("delete", "namespace", namespace, "--wait=false")
