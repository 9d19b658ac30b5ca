"""The mirror's pod has no rights, time to finish, and ports that only those who need them reach."""

import base64

import pytest
from shadowrun_mirror.config import MODULO, decode_config
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.configuration import mirror_config
from shadowrun_operator.manifests.mirror import (
    CREDENTIAL_FILE,
    mirror_deployment,
    mirror_network_policy,
    mirror_secret,
    mirror_service,
)
from shadowrun_operator.manifests.names import RunRef

from tests.unit.reconcile.world import spec

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="inference", uid="u")


def _config(**changes: object):  # type: ignore[no-untyped-def]
    return mirror_config(
        RUN,
        Spec.model_validate(spec(**changes)),
        seed=7,
        expiry=1000.0,
        version=3,
        window=1,
        copying=True,
        indicators=(),
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


def test_the_service_offers_both_ports() -> None:
    assert [p["port"] for p in mirror_service(RUN)["spec"]["ports"]] == [8080, 9090]


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


def test_without_a_key_requests_are_drawn_by_their_id() -> None:
    assert _config().capture.sampling.key_headers == ("x-request-id",)
