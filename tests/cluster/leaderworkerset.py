"""LeaderWorkerSet, the real controller with its webhooks, on a test cluster; built only when a test asks for it.

Everything comes from its Go module: the definitions, the controller and its chart. It makes its certificates itself.
This module must not know what a test does with a LeaderWorkerSet.
"""

import time

import yaml

from . import gotools
from .base import Cluster
from .commands import ClusterError
from .paths import REPOSITORY
from .progress import carry_out

PROGRAM = "lws"
MODULE = "sigs.k8s.io/lws"
IMAGE = "shadowrun-tests/lws:dev"
NAMESPACE = "lws-system"  # its definitions name it
DOCKERFILE = REPOSITORY / "tests" / "cluster" / "images" / "leaderworkerset" / "Dockerfile"
_TIMEOUT_S = 180.0
"""Its certificates reach it when the kubelet looks at its Secret again, which may take more than a minute."""


def install(cluster: Cluster) -> None:
    """The controller at work; again where it is there."""
    carry_out(gotools.plan([PROGRAM]))
    cluster.build_image(IMAGE, DOCKERFILE, gotools.path_of(PROGRAM).parent)
    cluster.load_docker_image(IMAGE)
    chart = gotools.source(PROGRAM, MODULE) / "charts" / "lws"
    definitions = [f"--filename={path}" for path in sorted((chart / "crds").glob("*.yaml"))]
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *definitions, timeout=_TIMEOUT_S)
    repository, tag = IMAGE.split(":")
    values = {
        "image.manager.repository": repository,
        "image.manager.tag": tag,
        "image.manager.pullPolicy": "IfNotPresent",
        "resources.requests.cpu": "50m",
        "resources.requests.memory": "64Mi",
    }
    options = [f"--set={key}={value}" for key, value in values.items()]
    into = [f"--namespace={NAMESPACE}", "--create-namespace", "--skip-crds"]
    cluster.helm("upgrade", "--install", "lws", str(chart), *into, *options, "--wait", timeout=_TIMEOUT_S)
    _until_it_takes_one(cluster)


def _until_it_takes_one(cluster: Cluster) -> None:
    """Ready means little before its webhooks answer."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    tried = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "tried", "namespace": NAMESPACE},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": template}},
    }
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(tried))
        except ClusterError as error:
            if time.monotonic() > deadline:
                raise ClusterError(f"no webhook of {PROGRAM} answers: {error}") from error
            time.sleep(2)
        else:
            return
