"""The stage of a demonstration: a cluster with the operator, and a namespace with a primary, its customers and runs.

Says on the screen what it does and how long that took. It knows no scenario and waits for no verdict.
"""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from examples.demo import screen
from examples.demo.scenarios import RELEASE_NAMESPACE, TAG, Image, Manifest
from tests.cluster.base import Cluster
from tests.cluster.paths import REPOSITORY

POLL_S = 2.0


class Stage:
    """One namespace of one cluster."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.begun = time.monotonic()

    def say(self, words: str) -> None:
        """One line with the time since the beginning."""
        print(f"[{screen.elapsed(time.monotonic() - self.begun):>5}] {words}", flush=True)

    @contextmanager
    def step(self, words: str) -> Iterator[None]:
        """Say what begins, and how long it took."""
        begun = time.monotonic()
        self.say(f"{words} ...")
        yield
        if (took := time.monotonic() - begun) > 1:
            print(f"        done in {took:.0f} s", flush=True)

    def prepare(self, images: Iterable[Image], site: Iterable[Manifest]) -> None:
        """Everything up to a primary that could serve: cluster, images, operator, an empty namespace, and `site`."""
        with self.step("cluster: three nodes, two GPU pools"):
            self.cluster.create()
        images = tuple(images)
        for number, image in enumerate(images, 1):
            with self.step(f"image {number} of {len(images)}: {image.tag}"):
                self.cluster.build_image(image.tag, REPOSITORY / image.dockerfile, REPOSITORY, image.target)
                self.cluster.load_docker_image(image.tag)
        with self.step("operator: helm upgrade --install charts/shadowrun"):
            self._install()
        with self.step(f"namespace {self.namespace}: the primary"):
            self.clear()
            self.cluster.kubectl("create", "namespace", self.namespace)
            self.serve(site)

    def clear(self) -> None:
        """End what is in the namespace: runs first, while somebody gives the customers' path back."""
        namespace = self.namespace
        if not self.cluster.kubectl("get", "namespace", namespace, "--ignore-not-found", "-o", "name").strip():
            return
        self.kubectl("delete", "shadowruns", "--all", "--timeout=120s", timeout=130)
        # An Envoy whose run was ended by the deletion waits for its last connections, some five minutes at most.
        self.cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=400s", timeout=410)

    def serve(self, site: Iterable[Manifest]) -> None:
        """Apply the primary, and wait until it could serve."""
        self.apply(*site)
        self.kubectl("rollout", "status", "deployment/chat", "--timeout=120s", timeout=130)

    def kubectl(self, *args: str, **more: Any) -> str:
        """Kubectl in the namespace."""
        return self.cluster.kubectl("-n", self.namespace, *args, **more)

    def apply(self, *manifests: Manifest) -> None:
        """Apply manifests in the namespace."""
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))

    def start(self, run: Manifest, customers: Iterable[Manifest]) -> None:
        """Apply a ShadowRun, then let the customers in: their Service is the one that the run makes."""
        self.apply(run)
        name, service = run["metadata"]["name"], run["spec"]["capture"]["proxy"]["serviceName"]
        deadline = time.monotonic() + 60
        while not self.kubectl("get", "service", service, "--ignore-not-found", "-o", "name").strip():
            if time.monotonic() > deadline:
                told = screen.waiting_for(self.status(name)) or "the operator has written no status"
                raise SystemExit(f"the capture Service {service} was not made within 60 s: {told}")
            time.sleep(0.5)
        self.apply(*customers)

    def status(self, name: str) -> screen.Status:
        """The status of a run, {} before there is one."""
        status: screen.Status = json.loads(self.kubectl("get", "shadowrun", name, "-o", "json")).get("status", {})
        return status

    def follow(self, name: str) -> Iterator[screen.Status]:
        """The status of a run every `POLL_S` seconds, the last one when it is complete or was not accepted."""
        while True:
            yield (status := self.status(name))
            if status.get("phase") == "Complete" or refused(status):
                return
            time.sleep(POLL_S)

    def _install(self) -> None:
        tags = [f"--set=image.{part}.tag={TAG}" for part in ("operator", "mirror", "capture")]
        line = ["upgrade", "--install", "shadowrun", str(REPOSITORY / "charts" / "shadowrun")]
        # The definition may be there already, applied by a test that ran on this cluster.
        line += [f"--namespace={RELEASE_NAMESPACE}", "--create-namespace", "--take-ownership"]
        self.cluster.helm(*line, *tags, timeout=120)
        operator = "deployment/shadowrun-operator"
        # The tag stays the same when its content changes, and only a restart makes the pod use the new one.
        self.cluster.kubectl("-n", RELEASE_NAMESPACE, "rollout", "restart", operator)
        self.cluster.kubectl("-n", RELEASE_NAMESPACE, "rollout", "status", operator, "--timeout=120s", timeout=130)


def refused(status: screen.Status) -> bool:
    """Whether the spec was not accepted: then nothing was created and nothing will be."""
    return any(c["type"] == "Accepted" and c["status"] == "False" for c in status.get("conditions", []))
