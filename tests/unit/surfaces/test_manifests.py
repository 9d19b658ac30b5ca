"""Every ShadowRun in the examples and the README is one that the API server and the operator would take."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from shadowrun_operator.api.accept import not_implemented
from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.manifests.candidate import change_problem

from examples.demo.scenarios import SCENARIOS, with_real_text

pytestmark = pytest.mark.surfaces

ROOT = Path(__file__).resolve().parents[3]
CRD = yaml.safe_load((ROOT / "crds" / "shadowruns.shadowrun.dev.yaml").read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

Manifest = dict[str, Any]


def shadowruns() -> dict[str, Manifest]:
    """Every ShadowRun there is, by where it stands."""
    found: dict[str, Manifest] = {}
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            if manifest.get("kind") == "ShadowRun":
                found[str(path.relative_to(ROOT))] = manifest
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)):
            found[f"{path.name} block {number}"] = yaml.safe_load(block)
    return found


RUNS = shadowruns()


def unknown_fields(value: Any, schema: Manifest, path: str = "") -> list[str]:
    """Paths that the API server would drop: structural schemas prune what they don't name."""
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in unknown_fields(v, schema.get("items", {}), f"{path}[{i}]")]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    found = [f"{path}.{key}" for key in value if key not in schema["properties"]]
    for key, inner in schema["properties"].items():
        if key in value and key != "metadata":
            found += unknown_fields(value[key], inner, f"{path}.{key}")
    return found


def test_there_are_examples_in_all_three_places() -> None:
    places = {name.split("/")[1] if "/" in name else "README" for name in RUNS}
    assert {"manifests", "demo", "README"} <= places


@pytest.mark.parametrize("where", RUNS)
def test_a_manifest_meets_the_definition(where: str) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(RUNS[where])
    assert unknown_fields(RUNS[where], SCHEMA) == []


@pytest.mark.parametrize("where", RUNS)
def test_a_manifest_asks_for_nothing_that_is_not_done_yet(where: str) -> None:
    run = ShadowRun.parse(RUNS[where])
    assert not_implemented(run.spec) == []


@pytest.mark.parametrize("where", RUNS)
def test_a_manifests_patch_changes_a_container_that_the_examples_have(where: str) -> None:
    source = {"spec": {"template": {"spec": {"containers": [{"name": "engine"}]}}}}
    candidate = ShadowRun.parse(RUNS[where]).spec.arms.candidate
    assert change_problem(candidate, source, selectors=({"app": "chat"},)) is None


def test_a_mistyped_field_would_be_found() -> None:
    run = {**RUNS["examples/manifests/quickstart.yaml"]}
    run["spec"] = {**run["spec"], "samplng": {"rate": "1%"}}
    assert unknown_fields(run, SCHEMA) == [".spec.samplng"]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda s: s.name)
def test_a_demos_run_fits_the_site_it_is_shown_on(scenario: Any) -> None:
    run, site = scenario.run(), {(m["kind"], m["metadata"]["name"]): m for m in scenario.site()}
    service = site["Service", run["spec"]["primary"]["service"]["name"]]
    primary = site["Deployment", run["spec"]["arms"]["template"]["deploymentRef"]["name"]]
    labels = primary["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (traffic,) = site["Deployment", "customers"]["spec"]["template"]["spec"]["containers"]
    capture = run["spec"]["capture"]["proxy"]["serviceName"]
    assert f"--url=http://{capture}:{run['spec']['primary']['service']['port']}" in traffic["args"]
    patched = {e["name"] for c in run["spec"]["arms"]["candidate"]["patch"]["spec"]["containers"] for e in c["env"]}
    (engine,) = primary["spec"]["template"]["spec"]["containers"]
    assert patched <= {entry["name"] for entry in engine["env"]}
    used = {c["image"] for kind, name in site if kind == "Deployment"
            for c in site[kind, name]["spec"]["template"]["spec"]["containers"]}  # fmt: skip
    assert used <= {image.tag for image in scenario.images}


def test_the_demo_with_real_text_is_a_run_that_would_be_taken_too() -> None:
    site, run = with_real_text(SCENARIOS["prefix-cache"].site(), SCENARIOS["prefix-cache"].run())
    jsonschema.Draft202012Validator(SCHEMA).validate(run)
    images = [
        c["image"] for m in site if m["kind"] == "Deployment" for c in m["spec"]["template"]["spec"]["containers"]
    ]
    assert "shadowrun/engine-smollm2:dev" in images
    assert "shadowrun/engine:dev" not in images
