"""The capture objects: harmless to customers when anything of ours is gone, and of the restricted profile."""

import base64
import json
from dataclasses import replace
from typing import Any

import jinja2
import pytest
import yaml
from msgspec import structs
from shadowrun_mirror.config import CaptureRules, Sampling
from shadowrun_mirror.directive import CaptureDirective, decode_directive
from shadowrun_mirror.receive import MAX_CONNECTIONS
from shadowrun_operator.api.traffic import CaptureProxy
from shadowrun_operator.manifests.bootstrap import ShadowBaggage, capture_ports, envoy_memory_bytes, max_copies
from shadowrun_operator.manifests.capture import (
    CaptureInputs,
    PrimaryService,
    capture_deployment,
    capture_pdb,
    capture_secret,
    capture_service,
)
from shadowrun_operator.manifests.names import RunRef

pytestmark = pytest.mark.path

PRIMARY = PrimaryService(
    name="chat", port=8000, target_port=8080, target_port_name="http", selector={"app": "chat"}, port_name="web"
)
SAMPLING = Sampling(unit="Conversation", threshold=1, seed=2, key_headers=("x-conversation-id",))
INPUTS = CaptureInputs(
    run=RunRef(name="demo", namespace="inference", uid="uid-1"),
    service_name="chat-shadowed",
    primary=PRIMARY,
    directive=CaptureDirective(
        version=3,
        run_uid="uid-1",
        window=0,
        copying=True,
        expiry=1e10,
        lease_s=10,
        rules=CaptureRules(paths=("/v1/chat/completions",), max_body_bytes=64 << 10, sampling=SAMPLING),
    ),
    token="secret-token",
    image="capture:1",
)


def with_bodies(max_body_bytes: int) -> CaptureInputs:
    rules = structs.replace(INPUTS.directive.rules, max_body_bytes=max_body_bytes)
    return replace(INPUTS, directive=structs.replace(INPUTS.directive, rules=rules))


def with_primary(**changes: Any) -> CaptureInputs:
    return replace(INPUTS, primary=replace(PRIMARY, **changes))


def bootstrap(inputs: CaptureInputs) -> dict[str, Any]:
    loaded = yaml.safe_load(base64.b64decode(capture_secret(inputs)["data"]["bootstrap.yaml"]))
    assert isinstance(loaded, dict)
    return loaded


def pod(inputs: CaptureInputs = INPUTS) -> dict[str, Any]:
    spec: dict[str, Any] = capture_deployment(inputs)["spec"]["template"]["spec"]
    return spec


def test_nothing_in_the_customers_path_is_deleted_with_the_run() -> None:
    for built in (
        capture_deployment(INPUTS),
        capture_pdb(INPUTS),
        capture_secret(INPUTS),
        capture_service(INPUTS, selects="primary"),
    ):
        assert "ownerReferences" not in built["metadata"]
        assert built["metadata"]["labels"]["shadowrun.dev/run"] == "demo"
        assert built["metadata"]["namespace"] == "inference"


def test_a_flip_changes_the_selector_and_nothing_else() -> None:
    before, after = capture_service(INPUTS, selects="primary"), capture_service(INPUTS, selects="capture")
    assert before["spec"].pop("selector") == {"app": "chat"}
    pods = capture_deployment(INPUTS)["spec"]["template"]["metadata"]["labels"]
    selector = after["spec"].pop("selector")
    assert selector.items() <= pods.items()
    assert before == after
    assert json.loads(after["metadata"]["annotations"]["shadowrun.dev/primary"]) == {"app": "chat"}


@pytest.mark.parametrize(("name", "expected"), [("http", "http"), ("", 8080)])
def test_the_target_port_leads_to_the_primarys_number_in_either_kind_of_pod(name: str, expected: str | int) -> None:
    inputs = with_primary(target_port_name=name)
    (port,) = capture_service(inputs, selects="capture")["spec"]["ports"]
    assert (port["port"], port["name"], port["targetPort"]) == (8000, "web", expected)
    envoy = pod(inputs)["containers"][0]
    assert {"name": name or "customers", "containerPort": 8080, "protocol": "TCP"} in envoy["ports"]
    address = bootstrap(inputs)["static_resources"]["listeners"][0]["address"]["socket_address"]
    assert address == {"address": "0.0.0.0", "port_value": 8080}


def test_the_service_has_the_protocol_and_the_address_families_of_the_primarys() -> None:
    inputs = with_primary(app_protocol="kubernetes.io/h2c", ip_families=("IPv6",), ip_family_policy="SingleStack")
    spec = capture_service(inputs, selects="capture")["spec"]
    assert spec["ports"][0]["appProtocol"] == "kubernetes.io/h2c"
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv6"], "SingleStack")


def test_pods_meet_the_restricted_profile_and_hold_no_api_token() -> None:
    spec = pod()
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "sysctls" not in spec["securityContext"]
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]
        assert "cpu" not in container["resources"]["limits"]


def test_a_privileged_port_is_opened_by_a_safe_sysctl() -> None:
    context = pod(with_primary(target_port=80))["securityContext"]
    assert context["sysctls"] == [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]


def test_only_envoy_decides_whether_a_pod_is_ready() -> None:
    envoy, companion = pod()["containers"]
    assert envoy["readinessProbe"]["httpGet"] == {"path": "/ready", "port": capture_ports(8080).readiness}
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert probe not in companion
    assert "livenessProbe" not in envoy
    assert "while :" in companion["command"][2]


def test_no_process_of_a_capture_pod_leaves_a_core_dump() -> None:
    for container in pod()["containers"]:
        script = container["command"][2]
        assert script.startswith("ulimit -c 0")
        assert script.index("ulimit -c 0") < script.index("envoy" if container["name"] == "envoy" else "python")


def test_envoy_may_finish_the_longest_stream_before_it_is_killed() -> None:
    spec = pod(replace(INPUTS, longest_stream_s=1200))
    for container in spec["containers"]:
        command = container["lifecycle"]["preStop"]["exec"]["command"]
        bounded = int(command[command.index("--timeout-s") + 1])
        assert 1200 < bounded < spec["terminationGracePeriodSeconds"]


def test_envoy_cannot_read_the_token_or_the_seed() -> None:
    spec = pod()
    items = {v["name"]: [i["key"] for i in v["secret"]["items"]] for v in spec["volumes"] if "secret" in v}
    envoy, companion = ([m["name"] for m in c["volumeMounts"]] for c in spec["containers"])
    assert [key for name in envoy for key in items.get(name, [])] == ["bootstrap.yaml"]
    assert [key for name in companion for key in items.get(name, [])] == ["directive.json", "token"]
    assert "secret-token" not in json.dumps(capture_deployment(INPUTS))


def test_the_bootstrap_template_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = bootstrap(INPUTS)
    monkeypatch.setattr(jinja2.Environment, "from_string", None)
    assert bootstrap(INPUTS) == built
    assert bootstrap(with_primary(name="other")) != built


def test_the_boot_directive_never_says_copy() -> None:
    data = capture_secret(INPUTS)["data"]
    boot = decode_directive(base64.b64decode(data["directive.json"]))
    assert boot.copying is False
    assert boot.rules == INPUTS.directive.rules
    assert base64.b64decode(data["token"]) == b"secret-token"


def test_envoy_reaches_the_primary_by_its_own_service_in_a_cluster_of_any_domain() -> None:
    clusters = {c["name"]: c for c in bootstrap(INPUTS)["static_resources"]["clusters"]}

    def address(name: str) -> dict[str, Any]:
        endpoint = clusters[name]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        found: dict[str, Any] = endpoint["address"]["socket_address"]
        return found

    assert address("primary") == {"address": "chat.inference.svc", "port_value": 8000}
    assert address("copies") == {"address": "demo-mirror.inference.svc", "port_value": 8080}
    for limits in ("outlier_detection", "health_checks"):
        assert limits not in clusters["primary"]


def test_copies_go_to_each_of_several_mirrors_and_questions_to_any() -> None:
    several = replace(INPUTS, mirrors=3)
    clusters = {c["name"]: c for c in bootstrap(several)["static_resources"]["clusters"]}
    (endpoint,) = clusters["mirror"]["load_assignment"]["endpoints"][0]["lb_endpoints"]
    address = endpoint["endpoint"]["address"]["socket_address"]
    assert address == {"address": "demo-mirror-pods.inference.svc", "port_value": 8080}
    assert clusters["mirror"]["lb_policy"] == "RING_HASH"
    one, each = (
        {e["name"]: e.get("value") for e in pod(inputs)["containers"][1]["env"]} for inputs in (INPUTS, several)
    )
    assert one["MIRROR_URL"] == one["MIRRORS_URL"] == each["MIRROR_URL"] == "http://demo-mirror.inference.svc:9090"
    assert each["MIRRORS_URL"] == "http://demo-mirror-pods.inference.svc:9090"


def test_several_mirrors_are_chosen_by_key_and_then_by_request() -> None:
    def to_mirror(inputs: CaptureInputs) -> dict[str, Any]:
        listeners = {each["name"]: each for each in bootstrap(inputs)["static_resources"]["listeners"]}
        manager = listeners["copies"]["filter_chains"][0]["filters"][0]["typed_config"]
        found: dict[str, Any] = manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
        return found

    policies = to_mirror(replace(INPUTS, mirrors=2))["hash_policy"]
    assert [each["header"]["header_name"] for each in policies] == ["x-conversation-id", "x-request-id"]
    assert all(each["terminal"] for each in policies)


@pytest.mark.parametrize(("baggage", "present"), [("Strip", True), ("Trust", False)])
def test_baggage_is_only_touched_where_that_was_asked_for(baggage: ShadowBaggage, present: bool) -> None:
    manager = bootstrap(replace(INPUTS, shadow_baggage=baggage))["static_resources"]["listeners"][0]
    filters = manager["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    assert ("baggage" in [each["name"] for each in filters]) == present
    assert all(each.get("disabled") for each in filters[:-1])


@pytest.mark.parametrize("target", [9901, 9902, 9091, 8080])
def test_the_pods_own_ports_make_way_for_the_primarys(target: int) -> None:
    ports = capture_ports(target)
    assert len({target, ports.admin, ports.readiness, ports.companion}) == 4
    assert bootstrap(with_primary(target_port=target))["admin"]["address"]["socket_address"] == {
        "address": "127.0.0.1",
        "port_value": ports.admin,
    }
    _, companion = pod(with_primary(target_port=target))["containers"]
    assert f"--port {ports.companion}" in companion["command"][2]


@pytest.mark.parametrize("size", [1, 64 << 10, 6 << 20])
def test_a_copy_goes_to_its_only_mirror_at_once_when_its_customer_is_done(size: int) -> None:
    built = bootstrap(with_bodies(size))["static_resources"]
    assert not any("internal_listener" in each for each in built["listeners"])
    (copies,) = (each for each in built["clusters"] if each["name"] == "copies")
    (limits,) = copies["circuit_breakers"]["thresholds"]
    assert limits["max_requests"] == limits["max_pending_requests"] == max_copies(size)
    assert limits["max_connections"] > 1000 * max_copies(size)
    (options,) = copies["typed_extension_protocol_options"].values()
    guard, whole, _ = options["http_filters"]
    assert "body()" in guard["typed_config"]["default_source_code"]["inline_string"]
    assert whole["typed_config"]["max_request_bytes"] == size


def test_a_copy_that_may_go_to_another_mirror_is_taken_in_by_the_process_first() -> None:
    built = bootstrap(replace(INPUTS, mirrors=2))["static_resources"]
    assert [each["name"] for each in built["listeners"] if "internal_listener" in each] == ["copies"]
    (copies,) = (each for each in built["clusters"] if each["name"] == "copies")
    (endpoint,) = copies["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"] == {"envoy_internal_address": {"server_listener_name": "copies"}}


@pytest.mark.parametrize("size", [1, 1 << 16, 1 << 20, 6 << 20, 1 << 30])
def test_copies_have_a_bounded_number_and_room_in_memory(size: int) -> None:
    assert 4 <= max_copies(size) <= 256
    (copies,) = (
        each for each in bootstrap(with_bodies(size))["static_resources"]["clusters"] if each["name"] == "copies"
    )
    (limits,) = copies["circuit_breakers"]["thresholds"]
    held = 2 * limits["max_requests"] + limits["max_pending_requests"]  # under way twice, waiting once
    assert envoy_memory_bytes(size) >= (1 << 30) + held * size
    assert max_copies(size) * size <= max(64 << 20, 4 * size)


def test_a_mirror_takes_a_connection_for_each_copy_that_all_of_capture_may_hold() -> None:
    most = CaptureProxy.model_json_schema()["properties"]["replicas"]["maximum"]
    assert max_copies(1) * (most + 1) <= MAX_CONNECTIONS  # one more while one takes another's place


def test_outcomes_are_written_to_a_small_volume_in_memory_that_nothing_waits_for() -> None:
    spec = pod()
    (volume,) = (each for each in spec["volumes"] if each["name"] == "outcomes")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "4Mi"}
    for container in spec["containers"]:
        assert {"name": "outcomes", "mountPath": "/var/run/shadowrun-outcomes"} in container["volumeMounts"]
    limit = int(spec["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi"))
    assert limit << 20 >= envoy_memory_bytes(64 << 10) + (4 << 20)  # what is in the volume counts as Envoy's
    loaded = bootstrap(INPUTS)
    (logger,) = (
        each["typed_config"]
        for each in loaded["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"][
            "access_log"
        ]
        if not each["name"].endswith(".stats")
    )
    assert logger["path"] == "/var/run/shadowrun-outcomes/outcomes.jsonl"
    assert logger["path"] in spec["containers"][1]["command"][2]
    assert {each["name"] for each in loaded["static_resources"]["clusters"]} == {"primary", "copies"}


def test_what_envoy_says_of_the_requests_it_died_in_is_thrown_away() -> None:
    command = pod()["containers"][0]["command"][2]
    assert command.endswith("--log-path $log --file-flush-interval-msec 500 2>/dev/null")
