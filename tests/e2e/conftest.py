"""The operator as a user installs it, on the cluster, and a namespace of its own for every module of tests."""

import re
import uuid
from collections.abc import Iterator

import pytest

from examples.demo.scenarios import PRODUCT, RELEASE_NAMESPACE, TAG, TRAFFIC
from tests.cluster.base import Cluster
from tests.cluster.paths import REPOSITORY
from tests.e2e.world import OPERATOR, World


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """The cluster with our images on its nodes and the chart installed by Helm."""
    for image in (*PRODUCT, TRAFFIC):
        cluster.build_image(image.tag, REPOSITORY / image.dockerfile, REPOSITORY, image.target)
        cluster.load_docker_image(image.tag)
    tags = [f"--set=image.{part}.tag={TAG}" for part in ("operator", "mirror", "capture")]
    chart = str(REPOSITORY / "charts" / "shadowrun")
    line = ["upgrade", "--install", "shadowrun", chart, f"--namespace={RELEASE_NAMESPACE}", "--create-namespace", *tags]
    cluster.helm(*line, timeout=120)
    # The tag stays when the content changes: only a restart makes sure that the pod runs what was just built.
    cluster.kubectl("-n", RELEASE_NAMESPACE, "rollout", "restart", OPERATOR)
    cluster.kubectl("-n", RELEASE_NAMESPACE, "rollout", "status", OPERATOR, "--timeout=120s", timeout=130)
    return cluster


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
