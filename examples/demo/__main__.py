"""`python -m examples.demo`: the main job from nothing to a verdict, with every step and its time on the screen.

Cluster up, images built and loaded, Helm install, primary and customers, one ShadowRun, its funnel while it runs, then
the verdict and the commands to look closer. The cluster stays up for those (`make cluster-down` ends it); the customers
are stopped at the end unless --keep. A second call builds nothing twice and replaces the first one's namespace.

Exit status: 0 when the scenario ended as it must (prefix-cache: Pass; dropper: Fail, DroppedHardRequests), 1 when it
did not. With --gate it is what `shadowrun gate` says: 0 Pass, 1 Fail, 2 Inconclusive, 3 error.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from examples.demo import screen
from examples.demo.scenarios import (
    ENGINE,
    RELEASE_NAMESPACE,
    SCENARIOS,
    SMOLLM2,
    TAG,
    Manifest,
    Scenario,
    with_real_text,
)
from tests.cluster.base import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.providers import cluster

POLL_S = 2.0
PRINT_EVERY_S = 10.0


class Demo:
    """One demonstration on one cluster."""

    def __init__(self, one: Cluster, scenario: Scenario, model: str) -> None:
        """`model` is random or smollm2."""
        self.cluster = one
        self.scenario = scenario
        self.site, self.run = scenario.site(), scenario.run()
        self.images = scenario.images
        if model == "smollm2" and ENGINE in scenario.images:
            self.site, self.run = with_real_text(self.site, self.run)
            self.images = tuple(SMOLLM2 if image == ENGINE else image for image in scenario.images)
        self.name: str = self.run["metadata"]["name"]
        self.begun = time.monotonic()

    @contextmanager
    def step(self, words: str) -> Iterator[None]:
        """Say what begins, and how long it took."""
        begun = time.monotonic()
        print(f"[{screen.elapsed(begun - self.begun):>5}] {words} ...", flush=True)
        yield
        if (took := time.monotonic() - begun) > 1:
            print(f"        done in {took:.0f} s", flush=True)

    def prepare(self) -> None:
        """Everything up to customers who are served by the primary."""
        with self.step("cluster: three nodes, two GPU pools"):
            self.cluster.create()
        for number, image in enumerate(self.images, 1):
            with self.step(f"image {number} of {len(self.images)}: {image.tag}"):
                self.cluster.build_image(image.tag, REPOSITORY / image.dockerfile, REPOSITORY, image.target)
                self.cluster.load_docker_image(image.tag)
        with self.step("operator: helm upgrade --install charts/shadowrun"):
            self._install()
        with self.step(f"namespace {self.scenario.namespace}: primary and customers"):
            self._site()

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

    def _site(self) -> None:
        namespace = self.scenario.namespace
        self.cluster.kubectl(
            "delete", "shadowrun", "--all", "-n", namespace, "--ignore-not-found", "--timeout=120s", timeout=130
        )
        self.cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s", timeout=130)
        self.cluster.kubectl("create", "namespace", namespace)
        self.apply(*(manifest for manifest in self.site if manifest["metadata"]["name"] != "customers"))
        self.kubectl("rollout", "status", "deployment/chat", "--timeout=120s", timeout=130)

    def kubectl(self, *args: str, **more: Any) -> str:
        """Kubectl in the demo's namespace."""
        return self.cluster.kubectl("-n", self.scenario.namespace, *args, **more)

    def apply(self, *manifests: Manifest) -> None:
        """Apply manifests in the demo's namespace."""
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))

    def start(self) -> None:
        """Apply the ShadowRun, then let the customers in: their Service is the one that the run makes."""
        with self.step(f"kubectl apply: ShadowRun {self.name}"):
            self.apply(self.run)
            self._until_service(self.run["spec"]["capture"]["proxy"]["serviceName"])
            self.apply(*(manifest for manifest in self.site if manifest["metadata"]["name"] == "customers"))

    def _until_service(self, name: str) -> None:
        deadline = time.monotonic() + 60
        while not self.kubectl("get", "service", name, "--ignore-not-found", "-o", "name").strip():
            if time.monotonic() > deadline:
                told = screen.waiting_for(self.status()) or "the operator has written no status"
                raise SystemExit(f"the capture Service {name} was not made within 60 s: {told}")
            time.sleep(0.5)

    def status(self) -> screen.Status:
        """The status of the run, {} before there is one."""
        found = json.loads(self.kubectl("get", "shadowrun", self.name, "-o", "json"))
        status: screen.Status = found.get("status", {})
        return status

    def watch(self) -> screen.Status:
        """Show the funnel until the run is complete; the last status."""
        live = sys.stdout.isatty()
        said, said_at, phase = "", 0.0, ""
        while True:
            status = self.status()
            line = f"[{screen.elapsed(time.monotonic() - self.begun):>5}] {screen.one_line(status)}"
            changed = status.get("phase") != phase
            phase = status.get("phase", "")
            if live:
                print(f"\r\033[K{line[:180]}", end="\n" if changed else "", flush=True)
            elif changed or (line[8:] != said and time.monotonic() - said_at > PRINT_EVERY_S):
                print(line, flush=True)
                said, said_at = line[8:], time.monotonic()
            if phase == "Complete" or self._refused(status):
                if live:
                    print()
                return status
            time.sleep(POLL_S)

    @staticmethod
    def _refused(status: screen.Status) -> bool:
        """Whether the spec was not accepted: then nothing was created and nothing will be."""
        return any(c["type"] == "Accepted" and c["status"] == "False" for c in status.get("conditions", []))

    def customers(self) -> str:
        """What the customers have seen: the generator's last line."""
        lines = self.kubectl("logs", "deployment/customers", "--tail=1").strip().splitlines()
        return lines[-1] if lines else "no word from the customers"

    def conclude(self, status: screen.Status) -> None:
        """The verdict, its grounds, and where to look."""
        for block in (screen.funnel_table(status), screen.losses(status), screen.criteria_table(status)):
            print("\n" + "\n".join(f"  {line}" for line in block) if block else "", flush=True)
        print(f"\n  customers meanwhile: {self.customers()}")
        print(f"\n  {status.get('verdict', 'no verdict')}: {status.get('reason', '')}. {status.get('message', '')}")
        namespace = self.scenario.namespace
        print("\n  look closer:")
        print(f"    export KUBECONFIG={self.cluster.kubeconfig_path}")
        print("    alias kubectl='python3 -m tests.cluster kubectl'   # unless you have one")
        print(f"    kubectl -n {namespace} get shadowruns -o wide")
        print(f"    kubectl -n {namespace} get shadowrun {self.name} -o yaml")
        if report := status.get("reportRef", {}).get("name"):
            print(f"    kubectl -n {namespace} get configmap {report} -o yaml")
        print(f"    kubectl -n {namespace} get events --sort-by=.lastTimestamp")

    def gate(self) -> int:
        """What a pipeline would do with it: the exit status of `shadowrun gate`."""
        line = [sys.executable, "-m", "shadowrun_operator.cli.main", "gate", self.name]
        line += ["--namespace", self.scenario.namespace, "--timeout", "60s"]
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig_path)}
        return subprocess.run(line, env=environment, check=False).returncode

    def as_expected(self, status: screen.Status) -> bool:
        """Whether the scenario ended as it must."""
        wanted = self.scenario
        return status.get("verdict") == wanted.verdict and wanted.reason in ("", status.get("reason"))


def arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m examples.demo", description=(__doc__ or "").splitlines()[0])
    p.add_argument("--scenario", choices=sorted(SCENARIOS), default="prefix-cache")
    p.add_argument("--model", choices=["random", "smollm2"], default="random", help="smollm2: real text, ten minutes")
    p.add_argument("--keep", action="store_true", help="leave the customers running")
    p.add_argument("--gate", action="store_true", help="exit with what `shadowrun gate` says")
    return p.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run one demonstration."""
    options = arguments(argv)
    demo = Demo(cluster(), SCENARIOS[options.scenario], options.model)
    demo.prepare()
    demo.start()
    status = demo.watch()
    demo.conclude(status)
    if not options.keep:
        demo.kubectl("scale", "deployment/customers", "--replicas=0")
    code = demo.gate()
    print(f"\n  shadowrun gate {demo.name}: exit status {code}")
    expected = demo.as_expected(status)
    wanted = f"{demo.scenario.verdict} {demo.scenario.reason}".strip()
    took = screen.elapsed(time.monotonic() - demo.begun)
    print(f"  this scenario must end {wanted}: it {'did' if expected else 'did NOT'}, after {took}")
    return code if options.gate else int(not expected)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
