"""Envoy Gateway, a real implementation of the Gateway API, on a test cluster; built only when a test asks for it.

Everything comes from Go modules: the definitions, the controller and its chart. The proxies run in an Envoy image that
the caller has built and loaded. This module must not know what a test does with a gateway.
"""

import tempfile
from pathlib import Path

import yaml

from . import gotools
from .base import Cluster
from .paths import REPOSITORY
from .progress import carry_out

PROGRAM = "envoy-gateway"
CONTROLLER = "github.com/envoyproxy/gateway"
DEFINITIONS = "sigs.k8s.io/gateway-api"
IMAGE = "shadowrun-tests/envoy-gateway:dev"
NAMESPACE = "envoy-gateway-system"
CLASS = "tests"
DOCKERFILE = REPOSITORY / "tests" / "cluster" / "images" / "envoygateway" / "Dockerfile"
CONTROLLER_NAME = "gateway.envoyproxy.io/gatewayclass-controller"
_TIMEOUT_S = 180


def install_definitions(cluster: Cluster) -> None:
    """The standard channel of the Gateway API, as of the version that the controller is built with."""
    folder = gotools.source(PROGRAM, DEFINITIONS) / "config" / "crd" / "standard"
    _apply(
        cluster, [path for path in sorted(folder.glob("gateway.networking.k8s.io_*.yaml")) if "_vap_" not in path.name]
    )


def install(cluster: Cluster, envoy_image: str) -> None:
    """The controller, and the GatewayClass `tests` whose proxies run `envoy_image`; again where it is there."""
    carry_out(gotools.plan([PROGRAM]))
    program = gotools.path_of(PROGRAM)
    cluster.build_image(IMAGE, DOCKERFILE, program.parent)
    cluster.load_docker_image(IMAGE)
    install_definitions(cluster)
    chart = gotools.source(PROGRAM, CONTROLLER) / "charts" / "gateway-helm"
    _apply(cluster, sorted((chart / "charts" / "crds" / "crds" / "generated").glob("*.yaml")))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as values:
        values.write(_values(chart))
        values.flush()
        options = [f"--values={values.name}", "--skip-crds", "--set=crds.enabled=false", "--wait", "--timeout=170s"]
        into = [f"--namespace={NAMESPACE}", "--create-namespace"]
        cluster.helm("upgrade", "--install", "envoy-gateway", str(chart), *into, *options, timeout=_TIMEOUT_S)
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(_class(envoy_image)))
    accepted = ("wait", "--for=condition=Accepted", f"gatewayclass/{CLASS}", "--timeout=60s")
    cluster.kubectl(*accepted, timeout=70)


def _apply(cluster: Cluster, paths: list[Path]) -> None:
    files = [f"--filename={path}" for path in paths]
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *files, timeout=_TIMEOUT_S)


def _values(chart: Path) -> str:
    """The chart's own values, in which a release of theirs would fill in the image."""
    template = (chart / "values.tmpl.yaml").read_text()
    text = template.replace("${GatewayImage}", f"localhost/{IMAGE}").replace(
        "${GatewayImagePullPolicy}", "IfNotPresent"
    )
    values = yaml.safe_load(text)
    values["topologyInjector"]["enabled"] = False
    values["deployment"]["envoyGateway"]["image"] = {"repository": IMAGE.split(":")[0], "tag": IMAGE.split(":")[1]}
    return yaml.safe_dump(values)


def _class(envoy_image: str) -> list[dict[str, object]]:
    """Proxies in pods of one container: what the controller would put beside Envoy asks it to end slowly."""
    envoy = {"name": "envoy", "imagePullPolicy": "IfNotPresent", "lifecycle": None}
    containers = [envoy, {"name": "shutdown-manager", "$patch": "delete"}]
    pod = {"containers": containers, "terminationGracePeriodSeconds": 5}
    patch = {"type": "StrategicMerge", "value": {"spec": {"template": {"spec": pod}}}}
    requests = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    kubernetes = {
        "envoyDeployment": {"container": {"image": envoy_image, "resources": requests}, "patch": patch},
        "envoyService": {"type": "ClusterIP"},
    }
    return [
        {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "EnvoyProxy",
            "metadata": {"name": CLASS, "namespace": NAMESPACE},
            "spec": {"provider": {"type": "Kubernetes", "kubernetes": kubernetes}},
        },
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": CLASS},
            "spec": {
                "controllerName": CONTROLLER_NAME,
                "parametersRef": {
                    "group": "gateway.envoyproxy.io",
                    "kind": "EnvoyProxy",
                    "name": CLASS,
                    "namespace": NAMESPACE,
                },
            },
        },
    ]
