"""What the demo can show: which files, which images, and how it must end. Facts, and the YAML they come from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RELEASE_NAMESPACE = "shadowrun-system"
TAG = "dev"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """An image and what it is built from; paths are relative to the repository."""

    tag: str
    target: str
    dockerfile: str = "Dockerfile"


PRODUCT = tuple(Image(f"shadowrun/{part}:{TAG}", part) for part in ("operator", "mirror", "capture"))
TRAFFIC = Image(f"shadowrun/traffic:{TAG}", "traffic", "examples/engine/Dockerfile")
ENGINE = Image(f"shadowrun/engine:{TAG}", "engine", "examples/engine/Dockerfile")
SMOLLM2 = Image(f"shadowrun/engine-smollm2:{TAG}", "smollm2", "examples/engine/Dockerfile")


@dataclass(frozen=True)
class Scenario:
    """One demonstration. `verdict` and `reason` are how it must end; "" leaves the reason open."""

    name: str
    images: tuple[Image, ...]
    verdict: str
    reason: str = ""

    @property
    def namespace(self) -> str:
        """Where everything but the operator lives."""
        return f"demo-{self.name}"

    def site(self) -> list[Manifest]:
        """The primary and its customers."""
        return list(yaml.safe_load_all((HERE / f"{self.name}.yaml").read_text()))

    def run(self) -> Manifest:
        """The ShadowRun."""
        loaded: Manifest = yaml.safe_load((HERE / f"{self.name}-run.yaml").read_text())
        return loaded


SCENARIOS = {
    "prefix-cache": Scenario("prefix-cache", (*PRODUCT, TRAFFIC, ENGINE), verdict="Pass"),
    "dropper": Scenario("dropper", (*PRODUCT, TRAFFIC), verdict="Fail", reason="DroppedHardRequests"),
}


def is_customers(manifest: Manifest) -> bool:
    """Whether a manifest of a site is the customers, who must wait for the Service that a run makes."""
    return bool(manifest["metadata"]["name"] == "customers")


_SMOLLM2_TRAFFIC = {
    "--rate": "0.2",
    "--turns": "4",
    "--conversations": "4",
    "--prompt-scale": "0.015",
    "--prompt-min": "60",
    "--prompt-max": "120",
    "--answer-tokens": "6",
}


def with_real_text(site: list[Manifest], run: Manifest) -> tuple[list[Manifest], Manifest]:
    """The same scenario with a model that writes real text: thirty times slower, so a lower rate and a longer run."""
    for manifest in site:
        for container in manifest.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            if container["image"] == ENGINE.tag:
                container["image"] = SMOLLM2.tag
            if "args" in container:
                given = dict(argument.split("=", 1) for argument in container["args"])
                container["args"] = [f"{name}={value}" for name, value in {**given, **_SMOLLM2_TRAFFIC}.items()]
    spec = run["spec"]
    spec["arms"]["warmup"] = {"duration": "1m", "requests": 12}
    spec["duration"] = "4m"
    spec["startDeadline"] = "10m"
    spec["admission"]["timeout"] = "120s"
    spec["slo"] = {"ttft": "30s"}
    spec["classes"] = []  # too few pairs to judge classes apart
    spec["criteria"] = [c for c in spec["criteria"] if c.get("class") != "default"]
    for criterion in spec["criteria"]:
        criterion["class"] = ""
        criterion["minPairs"] = 20
        if criterion["metric"] in ("WithinSLO", "Failures"):
            criterion["margin"] = "15%"
    return site, run
