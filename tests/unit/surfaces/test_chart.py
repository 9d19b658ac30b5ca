"""The chart, rendered by a real Helm: safe pods, least rights, one definition, no typo."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import gotools
from tests.cluster.commands import ClusterError, run
from tests.cluster.progress import carry_out
from tests.unit.cluster_io import rights

pytestmark = pytest.mark.surfaces

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "shadowrun"
CRD = ROOT / "crds" / "shadowruns.shadowrun.dev.yaml"

Manifest = dict[str, Any]


@pytest.fixture(scope="session", autouse=True)
def helm() -> None:
    """Helm from its Go module, built once per machine."""
    carry_out(gotools.plan(["helm"]))


def rendered(*options: str) -> list[Manifest]:
    """Manifests of the chart installed as `shadowrun` in `system`."""
    return rendered_as("shadowrun", "system", *options)


def rendered_as(release: str, namespace: str, *options: str) -> list[Manifest]:
    line: list[str | Path] = [gotools.path_of("helm"), "template", release, CHART, f"--namespace={namespace}", *options]
    return [manifest for manifest in yaml.safe_load_all(run(line)) if manifest]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def rules(manifests: list[Manifest], kind: str, name: str) -> Iterator[tuple[str, str, str]]:
    """(group, resource, verb) that a role of this name gives."""
    for role in of_kind(manifests, kind):
        if role["metadata"]["name"] == name:
            for rule in role["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        yield from ((group, resource, verb) for verb in rule["verbs"])


def test_helm_finds_nothing_to_complain_about() -> None:
    run([gotools.path_of("helm"), "lint", "--strict", CHART])


def test_the_definition_in_the_chart_is_the_one_in_crds() -> None:
    (installed,) = of_kind(rendered(), "CustomResourceDefinition")
    source = yaml.safe_load(CRD.read_text())
    assert installed["metadata"]["name"] == source["metadata"]["name"]
    assert installed["spec"] == source["spec"]


def test_the_definition_is_kept_on_uninstall_unless_told_otherwise() -> None:
    (kept,) = of_kind(rendered(), "CustomResourceDefinition")
    (going,) = of_kind(rendered("--set=crds.keep=false"), "CustomResourceDefinition")
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in going["metadata"]
    assert not of_kind(rendered("--set=crds.enabled=false"), "CustomResourceDefinition")


def test_the_pod_passes_the_restricted_standard_and_is_the_only_one() -> None:
    (deployment,) = of_kind(rendered(), "Deployment")
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "livenessProbe", "resources"} <= container.keys()
    assert container["command"] == ["python", "-m", "shadowrun_operator"]


def test_the_operator_is_told_the_images_it_makes_pods_from() -> None:
    (deployment,) = of_kind(rendered("--set=image.mirror.tag=m1", "--set=image.capture.repository=r/c"), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {entry["name"]: entry.get("value") for entry in container["env"]}
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert container["image"] == f"shadowrun/operator:{version}"
    assert given["MIRROR_IMAGE"] == "shadowrun/mirror:m1"
    assert given["CAPTURE_IMAGE"] == f"r/c:{version}"
    assert {"POD_NAME", "POD_NAMESPACE"} <= given.keys()
    assert (given["WATCH_NAMESPACES"], given["EXCLUDE_NAMESPACES"]) == ("", "")


@pytest.mark.parametrize(
    ("options", "policy", "secrets"),
    [
        ((), "IfNotPresent", ""),
        (
            ("--set=image.pullPolicy=Always", "--set=imagePullSecrets[0].name=a", "--set=imagePullSecrets[1].name=b"),
            "Always",
            "a,b",
        ),
    ],
)
def test_the_operator_is_told_how_those_images_are_pulled(options: tuple[str, ...], policy: str, secrets: str) -> None:
    (deployment,) = of_kind(rendered(*options), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (given["IMAGE_PULL_POLICY"], given["IMAGE_PULL_SECRETS"]) == (policy, secrets)
    assert container["imagePullPolicy"] == policy


@pytest.mark.parametrize("options", [(), ("--set=watchNamespaces={a,b}",)])
def test_no_role_has_a_wildcard_or_a_right_over_rights(options: tuple[str, ...]) -> None:
    manifests = rendered(*options)
    roles = of_kind(manifests, "ClusterRole") + of_kind(manifests, "Role")
    given = {r for role in roles for r in rules(manifests, role["kind"], role["metadata"]["name"])}
    assert len(given) > 30
    assert not [right for right in given if "*" in right]
    assert not [right for right in given if right[0] == "rbac.authorization.k8s.io"]
    assert {verb for _, resource, verb in given if resource == "nodes"} == {"get", "list"}
    assert {verb for _, resource, verb in given if resource == "pods"} == {"list", "watch"}


@pytest.mark.parametrize("options", [(), ("--set=watchNamespaces={a}",)])
def test_the_rights_are_those_that_the_code_needs_and_no_others(options: tuple[str, ...]) -> None:
    manifests, name = rendered("--set=gatewayAPI.enabled=true", *options), "shadowrun-operator"
    given = set(rules(manifests, "ClusterRole", name)) | set(rules(manifests, "Role", name))
    needed = rights.of_the_code()
    assert (sorted(needed - given), sorted(given - needed)) == ([], [])


def test_so_are_those_to_the_lease() -> None:
    given = set(rules(rendered("--set=replicas=2"), "Role", "shadowrun-operator-lease"))
    assert given == rights.of_the_lease()


def test_with_named_namespaces_nothing_but_nodes_is_cluster_wide() -> None:
    manifests = rendered("--set=watchNamespaces={a,b}")
    name = "shadowrun-operator"
    assert {resource for _, resource, _ in rules(manifests, "ClusterRole", name)} == {"nodes"}
    assert [r["metadata"]["namespace"] for r in of_kind(manifests, "Role")] == ["a", "b"]
    assert [r["metadata"]["namespace"] for r in of_kind(manifests, "RoleBinding")] == ["a", "b"]
    assert {(r["subjects"][0]["namespace"]) for r in of_kind(manifests, "RoleBinding")} == {"system"}
    wide = set(rules(rendered(), "ClusterRole", name))
    assert set(rules(manifests, "Role", name)) == {right for right in wide if right[1] != "nodes"}


@pytest.mark.parametrize("options", [(), ("--set=watchNamespaces={a,b}",)])
def test_routes_are_edited_only_where_that_is_allowed(options: tuple[str, ...]) -> None:
    def of_gateways(*more: str) -> dict[str, set[tuple[str, str]]]:
        manifests = rendered(*options, *more)
        return {
            kind: {(resource, verb) for group, resource, verb in given if group == "gateway.networking.k8s.io"}
            for kind in ("ClusterRole", "Role")
            if (given := list(rules(manifests, kind, "shadowrun-operator")))
        }

    assert not set().union(*of_gateways().values())
    given = of_gateways("--set=gatewayAPI.enabled=true")
    readable = {("gateways", "get"), ("gatewayclasses", "get")}
    edited = {("httproutes", "get"), ("httproutes", "patch")}
    expected = {"ClusterRole": readable, "Role": edited} if options else {"ClusterRole": readable | edited}
    assert given == expected


def test_one_operator_is_told_which_namespaces_it_leaves_to_another() -> None:
    (deployment,) = of_kind(rendered("--set=excludeNamespaces={a,team}"), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "EXCLUDE_NAMESPACES", "value": "a,team"} in container["env"]
    with pytest.raises(ClusterError, match="values don't meet the specifications"):
        rendered("--set=excludeNamespaces={a}", "--set=watchNamespaces={b}")


def test_two_releases_share_the_definition_and_no_other_object() -> None:
    def identities(manifests: list[Manifest]) -> set[tuple[str, str, str]]:
        return {(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in manifests}

    wide = rendered("--set=excludeNamespaces={b}")
    second = rendered_as("second-shadowrun", "b", "--set=crds.enabled=false", "--set=watchNamespaces={b}")
    assert not identities(wide) & identities(second)


def test_users_may_view_or_edit_runs_and_never_their_status() -> None:
    manifests = rendered()
    view = {verb for _, _, verb in rules(manifests, "ClusterRole", "shadowrun-operator-view")}
    edit = set(rules(manifests, "ClusterRole", "shadowrun-operator-edit"))
    assert view == {"get", "list", "watch"}
    assert {resource for _, resource, _ in edit} == {"shadowruns"}
    assert not [
        r for r in of_kind(rendered("--set=rbac.aggregate=false"), "ClusterRole") if "edit" in r["metadata"]["name"]
    ]


def test_metrics_have_a_service_and_a_monitor_only_where_asked() -> None:
    (service,) = of_kind(rendered(), "Service")
    (deployment,) = of_kind(rendered(), "Deployment")
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert not of_kind(rendered(), "ServiceMonitor")
    assert of_kind(rendered("--set=metrics.serviceMonitor.enabled=true"), "ServiceMonitor")


@pytest.mark.parametrize(
    "typo",
    [
        "image.operatr.tag=x",
        "image.mirror.tags=x",
        "watchNamespace={a}",
        "crds.enable=true",
        "crds.keep=maybe",
        "watchNamespaces={Not_A_Name}",
        "excludeNamespaces={Not_A_Name}",
        "excludeNamespaces={team-*}",
        "image.pullPolicy=Sometimes",
        "gatewayAPI.enable=true",
        "metrics.serviceMonitor.intervall=1m",
    ],
)
def test_a_mistyped_value_is_refused(typo: str) -> None:
    with pytest.raises(ClusterError, match="values don't meet the specifications"):
        rendered(f"--set={typo}")


def test_every_value_is_in_the_schema_and_every_property_of_the_schema_is_a_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}


def test_chart_and_distribution_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()


def test_a_second_replica_stands_by_with_a_lease_and_the_rights_for_that_one_alone() -> None:
    manifests = rendered("--set=replicas=2")
    (deployment,) = of_kind(manifests, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (deployment["spec"]["replicas"], given["LEASE_NAME"]) == (2, "shadowrun-operator")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}, "an operator without a lease never meets one with"
    (role,) = (r for r in of_kind(manifests, "Role") if r["metadata"]["name"] == "shadowrun-operator-lease")
    assert role["metadata"]["namespace"] == "system"
    named = {
        verb for rule in role["rules"] if rule.get("resourceNames") == ["shadowrun-operator"] for verb in rule["verbs"]
    }
    assert named == {"get", "update"}
    assert set(rules(manifests, "Role", "shadowrun-operator-lease")) == {
        ("coordination.k8s.io", "leases", verb) for verb in ("get", "update", "create")
    }


def test_a_single_replica_needs_no_lease() -> None:
    manifests = rendered()
    (deployment,) = of_kind(manifests, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "LEASE_NAME" not in {entry["name"] for entry in container["env"]}
    assert not of_kind(manifests, "Role")
