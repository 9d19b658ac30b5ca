"""The mirror's pod has no rights, time to finish, and ports that only those who need them reach."""

import base64

import hypothesis.strategies as st
import pytest
from hypothesis import given
from shadowrun_mirror.config import (
    CREDENTIAL_HEADERS,
    MODULO,
    Comparison,
    MirrorConfig,
    Pauses,
    TrafficClass,
    decode_config,
    encode,
)
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.configuration import before_s, mirror_config
from shadowrun_operator.manifests.mirror import (
    CREDENTIAL_FILE,
    copies_service,
    mirror_deployment,
    mirror_network_policy,
    mirror_pdb,
    mirror_pods_service,
    mirror_secret,
    mirror_service,
)
from shadowrun_operator.manifests.names import RunRef

from tests.unit.reconcile.world import spec

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="inference", uid="u")


def _config(
    *, rate_share: int = 1_000_000, before: bool = False, http2: bool = False, **changes: object
) -> MirrorConfig:
    return mirror_config(
        RUN,
        Spec.model_validate(spec(**changes)),
        seed=7,
        expiry=1000.0,
        version=3,
        window=1,
        copying=True,
        indicators=(),
        rate_share=rate_share,
        before=before,
        http2=http2,
    )


def test_the_pod_may_end_what_is_in_flight_before_it_is_killed() -> None:
    pods = mirror_deployment(RUN, image="m:1", token="t")["spec"]["template"]["spec"]
    assert pods["terminationGracePeriodSeconds"] >= 70


def test_the_pod_meets_the_restricted_profile_and_has_no_token() -> None:
    pods = mirror_deployment(RUN, image="m:1", token="t")["spec"]["template"]["spec"]
    assert pods["automountServiceAccountToken"] is False
    assert pods["securityContext"]["runAsNonRoot"] is True
    assert pods["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = pods["containers"][0]["securityContext"]
    assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def test_the_credential_is_mounted_where_the_configuration_says_it_is() -> None:
    deployment = mirror_deployment(RUN, image="m:1", token="t", credentials_secret="s", credentials_key="k")
    pods = deployment["spec"]["template"]["spec"]
    volume = next(v for v in pods["volumes"] if v["name"] == "credentials")
    mount = next(m for m in pods["containers"][0]["volumeMounts"] if m["name"] == "credentials")
    path = f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}"
    config = _config(arms={"credentialsSecretRef": {"name": "s", "key": "k"}})
    assert {arm.credential_file for arm in config.arms} == {path} == {CREDENTIAL_FILE}


def test_the_secret_holds_the_configuration_and_the_token() -> None:
    config = _config()
    data = mirror_secret(RUN, config, "t0ken")["data"]
    assert decode_config(base64.b64decode(data["config.json"])) == config
    assert base64.b64decode(data["token"]) == b"t0ken"


def test_copies_come_from_capture_only_and_control_from_the_operator_too() -> None:
    data, control = mirror_network_policy(RUN, operator_namespace="ops")["spec"]["ingress"]
    capture = {"podSelector": {"matchLabels": names.selector(RUN, "capture")}}
    assert data == {"from": [capture], "ports": [{"protocol": "TCP", "port": 8080}]}
    assert capture in control["from"]
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}} in control["from"]


def test_an_operator_outside_the_cluster_still_reaches_the_control_port() -> None:
    _, control = mirror_network_policy(RUN, operator_namespace="")["spec"]["ingress"]
    assert "from" not in control


def test_copies_of_another_proxy_come_from_anywhere_and_nobody_tells_outcomes() -> None:
    data, control = mirror_network_policy(RUN, operator_namespace="ops", external=True)["spec"]["ingress"]
    assert data == {"ports": [{"protocol": "TCP", "port": 8080}]}
    assert control["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}}]


def test_the_services_offer_every_port_of_the_pod() -> None:
    pods = mirror_deployment(RUN, image="m:1", token="t")["spec"]["template"]["spec"]
    offered = {p["name"]: p["containerPort"] for p in pods["containers"][0]["ports"]}
    assert offered == {"data": 8080, "control": 9090}
    for service in (mirror_service(RUN), mirror_pods_service(RUN)):
        assert {p["targetPort"]: p["port"] for p in service["spec"]["ports"]} == offered


def test_the_service_for_copies_leads_to_the_data_port_and_outlives_the_run() -> None:
    service = copies_service(RUN, "chat-copies")
    assert "ownerReferences" not in service["metadata"]
    assert service["metadata"]["labels"][names.COMPONENT_LABEL] == "copies"
    assert service["spec"]["selector"] == names.selector(RUN, "mirror")
    assert [(p["port"], p["targetPort"]) for p in service["spec"]["ports"]] == [(8080, "data")]


def test_several_mirrors_are_kept_apart_and_replaced_one_at_a_time() -> None:
    spec = mirror_deployment(RUN, image="m:1", token="t", replicas=3)["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == spec["selector"]["matchLabels"]
    assert mirror_pdb(RUN)["spec"]["selector"] == spec["selector"]
    assert mirror_pods_service(RUN)["spec"]["clusterIP"] == "None"


def test_a_single_mirror_is_never_doubled() -> None:
    spec = mirror_deployment(RUN, image="m:1", token="t")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert "affinity" not in spec["template"]["spec"]


def test_the_configuration_says_what_the_spec_says() -> None:
    config = _config(
        sampling={"unit": "Conversation", "rate": "0.5%", "key": {"header": "x-conversation-id"}},
        arms={"model": "small", "candidate": {"model": "large"}, "control": "Enabled"},
        classes=[{"name": "long", "when": {"promptTokens": {"min": 800}}, "slo": {"ttft": "9s"}}],
    )
    sampling = config.capture.sampling
    assert (sampling.threshold, sampling.key_headers, sampling.seed) == (MODULO - 5000, ("x-conversation-id",), 7)
    assert [(a.name, a.model) for a in config.arms] == [
        ("baseline", "small"),
        ("candidate", "large"),
        ("control", "small"),
    ]
    assert config.arms[1].host == "x-candidate.inference.svc"
    assert config.arms[1].port == 8000
    assert config.classes[0].min_prompt_tokens == 800
    assert config.class_slos["long"].ttft_s == 9.0
    assert config.slo.ttft_s == 2.0


def test_the_mirror_compares_answers_where_the_spec_asks_for_parity_and_as_it_asks() -> None:
    assert _config().comparison is None
    assert _config(comparison={"output": "None"}).comparison is None
    assert _config(comparison={"output": "Parity"}).comparison == Comparison()
    asked = {"output": "Parity", "ignoreFields": ["timings", "choices.message.content.at"], "arrayOrder": "Ignored"}
    config = _config(comparison=asked)
    assert config.comparison == Comparison(ignored=("timings", "choices.message.content.at"), ordered=False)
    assert decode_config(encode(config)) == config


def test_without_a_key_requests_are_drawn_by_their_id() -> None:
    assert _config().capture.sampling.key_headers == ("x-request-id",)


@pytest.mark.parametrize(
    ("sampling", "headers", "field", "missing", "needs_body"),
    [
        ({}, ("x-request-id",), "", "Random", False),
        ({"onMissingKey": "Skip"}, ("x-request-id",), "", "Skip", False),
        ({"unit": "Key", "key": {"header": "x-user"}}, ("x-user",), "", "Random", False),
        ({"unit": "Key", "key": {"header": "x-user"}, "onMissingKey": "Skip"}, ("x-user",), "", "Skip", False),
        ({"unit": "Key", "key": {"credential": True}}, CREDENTIAL_HEADERS, "", "Random", False),
        ({"unit": "Key", "key": {"bodyField": "user"}}, (), "user", "Random", True),
        ({"unit": "Conversation"}, (), "", "Lineage", True),
        (
            {"unit": "Conversation", "key": {"header": "x-c"}, "onMissingKey": "Lineage"},
            ("x-c",),
            "",
            "Lineage",
            True,
        ),
        ({"unit": "Conversation", "key": {"bodyField": "id"}}, (), "id", "Random", True),
    ],
)
def test_the_key_is_looked_for_where_the_spec_says(
    sampling: dict[str, object], headers: tuple[str, ...], field: str, missing: str, needs_body: bool
) -> None:
    built = _config(sampling={"unit": "Request", "rate": "1%"} | sampling).capture.sampling
    assert (built.key_headers, built.key_field, built.on_missing_key) == (headers, field, missing)
    assert built.needs_body is needs_body


def test_rates_of_classes_are_lowered_in_the_same_proportion() -> None:
    sampling = {"rate": "1%", "classRates": [{"class": "long", "rate": "40%"}, {"class": "rare", "rate": "0.0001%"}]}
    whole, half = (_config(sampling=sampling, rate_share=share).capture.sampling for share in (1_000_000, 500_000))
    assert whole.threshold == MODULO - 10_000
    assert whole.class_thresholds == {"long": MODULO - 400_000, "rare": MODULO - 1}
    assert half.threshold == MODULO - 5_000
    assert half.class_thresholds == {"long": MODULO - 200_000, "rare": MODULO - 1}, "none is lowered to nothing"


@given(share=st.integers(1, MODULO), less=st.integers(1, MODULO), rate=st.integers(1, MODULO))
def test_a_lower_share_only_takes_keys_away(share: int, less: int, rate: int) -> None:
    lower, higher = sorted((share, less))
    rates = f"{rate // 10_000}.{rate % 10_000:04d}%"
    few, many = (_config(sampling={"rate": rates}, rate_share=s).capture.sampling.threshold for s in (lower, higher))
    assert MODULO - rate <= many <= few < MODULO


def test_customers_are_watched_without_copies_before_the_guard_pauses_now_and_then() -> None:
    guard = {"maxLatencyIncrease": "10%", "pauseShare": "5%", "pauseSlot": "20s"}
    pauses = [_config(livePathGuard=guard, before=before).capture.pauses for before in (True, False)]
    assert pauses == [Pauses(share=MODULO, slot_s=20), Pauses(share=50_000, slot_s=20)]
    assert _config(before=True).capture.pauses is None


@pytest.mark.parametrize(("slot", "seconds"), [("10s", 30), ("30s", 30), ("2m", 120)])
def test_customers_are_watched_for_half_a_minute_or_one_slot(slot: str, seconds: int) -> None:
    guarded = spec(livePathGuard={"maxErrorIncrease": "1%", "pauseSlot": slot})
    assert before_s(Spec.model_validate(guarded)) == seconds
    assert before_s(Spec.model_validate(spec())) == 0


@pytest.mark.parametrize(
    ("replicas", "limits"), [(1, (10, 5, 2.0)), (2, (5, 2, 2.0)), (3, (3, 1, 2.0)), (10, (1, 0, 0.0))]
)
def test_the_limits_are_divided_among_the_mirrors_and_never_exceeded(
    replicas: int, limits: tuple[int, int, float]
) -> None:
    block = {"maxInFlight": 10, "timeout": "9s", "queue": {"maxLength": 5, "maxWait": "2s"}}
    each = _config(admission=block, mirror={"replicas": replicas}).admission
    assert (each.max_in_flight, each.max_queued, each.max_wait_s) == limits
    assert each.timeout_s == 9.0
    assert (each.max_in_flight * replicas <= 10, each.max_queued * replicas <= 5) == (True, True)


@pytest.mark.parametrize(
    ("in_flight", "replicas", "kept"), [(8, 1, 12 << 20), (1, 1, 16 << 20), (1024, 1, 96 << 10), (1024, 16, 1536 << 10)]
)
def test_answers_that_must_be_kept_share_what_the_mirror_has_for_them(in_flight: int, replicas: int, kept: int) -> None:
    each = _config(admission={"maxInFlight": in_flight}, mirror={"replicas": replicas}).admission
    assert (each.max_answer_bytes, each.max_kept_bytes) == (16 << 20, kept)


def test_a_class_says_all_that_a_request_must_be() -> None:
    when = {
        "promptTokens": {"max": 9},
        "turns": {"min": 2, "max": 3},
        "stream": True,
        "tools": False,
        "schema": True,
        "images": False,
    }
    (built,) = _config(classes=[{"name": "c", "when": when}]).classes
    assert built == TrafficClass(
        name="c",
        max_prompt_tokens=9,
        min_turns=2,
        max_turns=3,
        stream=True,
        tools=False,
        schema=True,
        images=False,
    )


def test_the_mirror_is_told_whose_copies_it_gets_and_how_the_arms_speak() -> None:
    external = {"mode": "External", "proxy": None, "external": {"serviceName": "copies"}}
    assert [_config().source, _config(capture=external).source] == ["Proxy", "External"]
    assert {arm.http2 for arm in _config(http2=True).arms} == {True}
    assert {arm.http2 for arm in _config().arms} == {False}
