"""`python -m examples.demo`: the main job from nothing to a verdict, with every step and its time on the screen.

Cluster up, images built and loaded, Helm install, primary and customers, one ShadowRun, its funnel while it runs, then
the verdict and the commands to look closer. The cluster stays up for those (`make cluster-down` ends it); the customers
are stopped at the end unless --keep. A second call builds nothing twice and replaces the first one's namespace.

Exit status: 0 when the scenario ended as it must (prefix-cache: Pass; dropper: Fail, DroppedHardRequests), 1 when it
did not. With --gate it is what `shadowrun gate` says: 0 Pass, 1 Fail, 2 Inconclusive, 3 error.
"""

import argparse
import os
import subprocess
import sys
import time

from examples.demo import screen
from examples.demo.scenarios import ENGINE, SCENARIOS, SMOLLM2, Scenario, is_customers, with_real_text
from examples.demo.stage import Stage
from tests.cluster.base import Cluster
from tests.cluster.providers import cluster

PRINT_EVERY_S = 10.0


class Demo:
    """One demonstration on one cluster."""

    def __init__(self, one: Cluster, scenario: Scenario, model: str) -> None:
        """`model` is random or smollm2."""
        self.scenario = scenario
        self.site, self.run = scenario.site(), scenario.run()
        self.images = scenario.images
        if model == "smollm2" and ENGINE in scenario.images:
            self.site, self.run = with_real_text(self.site, self.run)
            self.images = tuple(SMOLLM2 if image == ENGINE else image for image in scenario.images)
        self.name: str = self.run["metadata"]["name"]
        self.stage = Stage(one, scenario.namespace)

    def prepare(self) -> None:
        """Everything up to a primary that could serve."""
        self.stage.prepare(self.images, (m for m in self.site if not is_customers(m)))

    def start(self) -> None:
        """Apply the ShadowRun, then let the customers in."""
        with self.stage.step(f"kubectl apply: ShadowRun {self.name}, then the customers"):
            self.stage.start(self.run, filter(is_customers, self.site))

    def watch(self) -> screen.Status:
        """Show the funnel until the run is complete; the last status."""
        live = sys.stdout.isatty()
        said, said_at, phase = "", 0.0, ""
        status: screen.Status = {}
        for status in self.stage.follow(self.name):
            line = f"[{screen.elapsed(time.monotonic() - self.stage.begun):>5}] {screen.one_line(status)}"
            changed = status.get("phase") != phase
            phase = status.get("phase", "")
            if live:
                print(f"\r\033[K{line[:180]}", end="\n" if changed else "", flush=True)
            elif changed or (line[8:] != said and time.monotonic() - said_at > PRINT_EVERY_S):
                print(line, flush=True)
                said, said_at = line[8:], time.monotonic()
        if live:
            print()
        return status

    def customers(self) -> str:
        """What the customers have seen: the generator's last line."""
        lines = self.stage.kubectl("logs", "deployment/customers", "--tail=1").strip().splitlines()
        return lines[-1] if lines else "no word from the customers"

    def conclude(self, status: screen.Status) -> None:
        """The verdict, its grounds, and where to look."""
        for block in (screen.funnel_table(status), screen.losses(status), screen.criteria_table(status)):
            print("\n" + "\n".join(f"  {line}" for line in block) if block else "", flush=True)
        print(f"\n  customers meanwhile: {self.customers()}")
        print(f"\n  {status.get('verdict', 'no verdict')}: {status.get('reason', '')}. {status.get('message', '')}")
        namespace = self.scenario.namespace
        print("\n  look closer:")
        print(f"    export KUBECONFIG={self.stage.cluster.kubeconfig_path}")
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
        environment = {**os.environ, "KUBECONFIG": str(self.stage.cluster.kubeconfig_path)}
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
        demo.stage.kubectl("scale", "deployment/customers", "--replicas=0")
    code = demo.gate()
    print(f"\n  shadowrun gate {demo.name}: exit status {code}")
    expected = demo.as_expected(status)
    wanted = f"{demo.scenario.verdict} {demo.scenario.reason}".strip()
    took = screen.elapsed(time.monotonic() - demo.stage.begun)
    print(f"  this scenario must end {wanted}: it {'did' if expected else 'did NOT'}, after {took}")
    return code if options.gate else int(not expected)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
