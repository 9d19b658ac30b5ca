"""Every constraint of the resource, asked of a real API server: one object that it takes and one that it refuses."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.integration.api.conftest import Runs
from tests.integration.api.manifest import ABSENT, manifest

pytestmark = [pytest.mark.operator, pytest.mark.e2e]


class Rule(NamedTuple):
    """One constraint by two changes of the base manifest, and a piece of what the refusal says."""

    accepted: Mapping[str, Any]
    refused: Mapping[str, Any]
    message: str


def latency(**fields: Any) -> dict[str, Any]:
    """A criterion on a latency."""
    return {"name": "x", "metric": "TTFT", "quantile": "p95", "require": "Better"} | fields


def share(**fields: Any) -> dict[str, Any]:
    """A criterion on a share."""
    return {"name": "x", "metric": "Failures", "require": "NotWorse", "margin": "1%"} | fields


def only(*criteria: dict[str, Any]) -> dict[str, Any]:
    """These criteria instead of the base's."""
    return {"spec.criteria": list(criteria)}


def rates(*entries: dict[str, Any]) -> dict[str, Any]:
    """Rates of classes, with criteria that each name a class."""
    return {"spec.sampling": {"unit": "Request", "classRates": list(entries)}} | only(share(**{"class": "long"}))


def rated_conversations(**when: Any) -> dict[str, Any]:
    """A class with a rate of its own where conversations are kept together."""
    by_class = {"spec.sampling": {"unit": "Conversation", "classRates": [{"class": "x", "rate": "9%"}]}}
    return by_class | {"spec.classes": [{"name": "x", "when": when}]} | only(share(**{"class": "x"}))


def queue(length: int, wait: str) -> dict[str, Any]:
    """A queue before the cap; the cap is high enough for any number of mirrors."""
    return {"spec.admission.queue": {"maxLength": length, "maxWait": wait}}


def template(**sources: Any) -> dict[str, Any]:
    """What arms start from."""
    return {"spec.arms.template": sources}


def behind_urls(**urls: Any) -> dict[str, Any]:
    """Arms that exist already."""
    known = {"baselineURL": "http://old.models.svc:8000", "candidateURL": "http://new"} | urls
    external = {key: url for key, url in known.items() if url is not ABSENT}
    return {
        "spec.arms": {"template": {"external": external}, "candidate": {}},
        "spec.hardware": {"policy": "Report"},
    }


def crossover(**ends: Any) -> dict[str, Any]:
    """Arms that change places, in a run that may end like this."""
    return {"spec.hardware.crossover": "Enabled", "spec.endConditions": {"minDuration": "1h", **ends}}


def guard(**fields: Any) -> dict[str, Any]:
    """A guard of the live path."""
    block = {"maxErrorIncrease": "1%"} | fields
    return {"spec.livePathGuard": {key: value for key, value in block.items() if value is not ABSENT}}


def daily(**fields: Any) -> dict[str, Any]:
    """A window of the day."""
    block = {"from": "09:00", "to": "17:00"} | fields
    return {"spec.schedule": {"dailyWindow": {key: value for key, value in block.items() if value is not ABSENT}}}


CLASS = {"name": "long", "when": {"promptTokens": {"min": 8000}}}
CREDENTIAL = {"credential": True}
EXTERNAL = {"mode": "External", "external": {"serviceName": "chat-copies"}}
ROUTED = {"mode": "HTTPRoute", "httpRoute": {"name": "front", "rule": "chat", "serviceName": "chat-copies"}}

RULES = {
    "a name is at most 40 characters": Rule(
        {"metadata.name": "a" * 40}, {"metadata.name": "a" * 41}, "at most 40 characters"
    ),
    "a name starts with a letter": Rule(
        {"metadata.name": "a1"}, {"metadata.name": "1a"}, "a DNS label that starts with a letter"
    ),
    "a name has no dot": Rule({"metadata.name": "a-b"}, {"metadata.name": "a.b"}, "a DNS label"),
    "a spec is required": Rule({}, {"spec": ABSENT}, "spec: Required value"),
    "a primary is required": Rule({}, {"spec.primary": ABSENT}, "spec.primary: Required value"),
    "a port is a port": Rule(
        {"spec.primary.service.port": 65535}, {"spec.primary.service.port": 65536}, "less than or equal to 65535"
    ),
    "a Service name is a label": Rule(
        {"spec.primary.service.name": "chat-2"}, {"spec.primary.service.name": "chat.2"}, "should match"
    ),
    "mode Proxy needs its settings": Rule({}, {"spec.capture": {}}, "mode Proxy needs capture.proxy"),
    "another mode has no proxy": Rule(
        {"spec.capture": EXTERNAL}, {"spec.capture": EXTERNAL | {"proxy": {"serviceName": "x"}}}, "for mode Proxy only"
    ),
    "mode External needs its settings": Rule(
        {"spec.capture": EXTERNAL}, {"spec.capture": {"mode": "External"}}, "mode External needs capture.external"
    ),
    "another mode has no settings of External": Rule(
        {"spec.capture": ROUTED},
        {"spec.capture": ROUTED | {"external": {"serviceName": "x"}}},
        "for mode External only",
    ),
    "mode HTTPRoute needs its settings": Rule(
        {"spec.capture": ROUTED}, {"spec.capture": {"mode": "HTTPRoute"}}, "mode HTTPRoute needs capture.httpRoute"
    ),
    "another mode has no settings of HTTPRoute": Rule(
        {"spec.capture": ROUTED},
        {"spec.capture": EXTERNAL | {"httpRoute": ROUTED["httpRoute"]}},
        "for mode HTTPRoute only",
    ),
    "a filter needs a rule": Rule(
        {"spec.capture": ROUTED},
        {"spec.capture": {"mode": "HTTPRoute", "httpRoute": {"name": "front", "serviceName": "x"}}},
        "spec.capture.httpRoute.rule: Required value",
    ),
    "a filter needs a route": Rule(
        {"spec.capture": ROUTED},
        {"spec.capture": {"mode": "HTTPRoute", "httpRoute": {"rule": "chat", "serviceName": "x"}}},
        "spec.capture.httpRoute.name: Required value",
    ),
    "a filter needs a Service": Rule(
        {"spec.capture": ROUTED},
        {"spec.capture": {"mode": "HTTPRoute", "httpRoute": {"name": "front", "rule": "chat"}}},
        "spec.capture.httpRoute.serviceName: Required value",
    ),
    "a rule's name is a subdomain": Rule(
        {"spec.capture": {"mode": "HTTPRoute", "httpRoute": {"name": "a.b", "rule": "c.d", "serviceName": "x"}}},
        {"spec.capture": {"mode": "HTTPRoute", "httpRoute": {"name": "a.b", "rule": "c_d", "serviceName": "x"}}},
        "should match",
    ),
    "a route's name is a subdomain": Rule(
        {"spec.capture": {"mode": "HTTPRoute", "httpRoute": {"name": "a.b", "rule": "c", "serviceName": "x"}}},
        {"spec.capture": {"mode": "HTTPRoute", "httpRoute": {"name": "a/b", "rule": "c", "serviceName": "x"}}},
        "should match",
    ),
    "the Service that a filter names is not the primary": Rule(
        {"spec.capture": ROUTED},
        {"spec.capture": {"mode": "HTTPRoute", "httpRoute": {"name": "a", "rule": "c", "serviceName": "chat"}}},
        "must differ from the primary's Service",
    ),
    "the Service that a filter names is not one of the run's": Rule(
        {"spec.capture": ROUTED},
        {
            "spec.capture": {
                "mode": "HTTPRoute",
                "httpRoute": {"name": "a", "rule": "c", "serviceName": "prefix-cache-mirror"},
            }
        },
        "for a Service of its own",
    ),
    "the Service for copies is not the primary": Rule(
        {"spec.capture": EXTERNAL},
        {"spec.capture": {"mode": "External", "external": {"serviceName": "chat"}}},
        "must differ from the primary's Service",
    ),
    "the Service for copies is not one of the run's": Rule(
        {"spec.capture": EXTERNAL},
        {"spec.capture": {"mode": "External", "external": {"serviceName": "prefix-cache-mirror-pods"}}},
        "for a Service of its own",
    ),
    "shadow baggage is stripped or trusted": Rule(
        {"spec.capture.proxy.shadowBaggage": "Trust"},
        {"spec.capture.proxy.shadowBaggage": "Keep"},
        "Unsupported value",
    ),
    "a mode is a known one": Rule({"spec.capture.mode": "Proxy"}, {"spec.capture.mode": "Magic"}, "Unsupported value"),
    "capture is not the primary": Rule(
        {"spec.capture.proxy.serviceName": "front"},
        {"spec.capture.proxy.serviceName": "chat"},
        "must differ from the primary's Service",
    ),
    "capture's Service is not one of the run's": Rule(
        {"spec.capture.proxy.serviceName": "prefix-cache-live"},
        {"spec.capture.proxy.serviceName": "prefix-cache-candidate"},
        "for a Service of its own",
    ),
    "capture has a pod": Rule({"spec.capture.proxy.replicas": 1}, {"spec.capture.proxy.replicas": 0}, "greater than"),
    "a path is absolute": Rule(
        {"spec.capture.paths": ["/v1/completions"]}, {"spec.capture.paths": ["v1"]}, "should match"
    ),
    "there is a path": Rule(
        {"spec.capture.paths": ["/a", "/b"]}, {"spec.capture.paths": []}, "should have at least 1 items"
    ),
    "a path is listed once": Rule(
        {"spec.capture.paths": ["/a"]}, {"spec.capture.paths": ["/a", "/a"]}, "Duplicate value"
    ),
    "a model is listed once": Rule(
        {"spec.capture.models": ["m"]}, {"spec.capture.models": ["m", "m"]}, "Duplicate value"
    ),
    "a body size is bounded": Rule(
        {"spec.capture.maxBodyBytes": "99Mi"}, {"spec.capture.maxBodyBytes": "100Mi"}, "maxBodyBytes"
    ),
    "a rate is above zero": Rule(
        {"spec.sampling.rate": "0.0001%"}, {"spec.sampling.rate": "0.0%"}, "rate must be above 0%"
    ),
    "a rate is at most 100%": Rule({"spec.sampling.rate": "100%"}, {"spec.sampling.rate": "101%"}, "should match"),
    "a rate has at most four decimals": Rule(
        {"spec.sampling.rate": "0.1234%"}, {"spec.sampling.rate": "0.12345%"}, "spec.sampling.rate"
    ),
    "a rate is a string": Rule({"spec.sampling.rate": "1%"}, {"spec.sampling.rate": 1}, "must be of type string"),
    "a key has exactly one form": Rule(
        {"spec.sampling.key": {"bodyField": "user"}},
        {"spec.sampling.key": {"bodyField": "user", "header": "x-user"}},
        "exactly one of header, bodyField and credential",
    ),
    "a key has a form": Rule({"spec.sampling.key": CREDENTIAL}, {"spec.sampling.key": {}}, "exactly one of"),
    "credential is true or absent": Rule(
        {"spec.sampling.key": CREDENTIAL}, {"spec.sampling.key": {"credential": False}}, "Unsupported value"
    ),
    "a header is lower case": Rule(
        {"spec.sampling.key": {"header": "x-user"}}, {"spec.sampling.key": {"header": "X-User"}}, "should match"
    ),
    "unit Request has no key": Rule(
        {"spec.sampling": {"unit": "Request"}}, {"spec.sampling.unit": "Request"}, "unit Request takes no key"
    ),
    "a key in the body is at its top": Rule(
        {"spec.sampling.key": {"bodyField": "prompt_cache_key"}},
        {"spec.sampling.key": {"bodyField": "metadata.user"}},
        "should match",
    ),
    "only conversations are followed": Rule(
        {"spec.sampling.onMissingKey": "Lineage"},
        {"spec.sampling.onMissingKey": "Lineage", "spec.sampling.unit": "Key"},
        "onMissingKey Lineage follows conversations",
    ),
    "conversations without a key are not skipped": Rule(
        {"spec.sampling": {"unit": "Conversation"}},
        {"spec.sampling": {"unit": "Conversation", "onMissingKey": "Skip"}},
        "none is skipped for lack of a key",
    ),
    "a target is above zero": Rule(
        {"spec.sampling.targetPairsPerSecond": "0.001"},
        {"spec.sampling.targetPairsPerSecond": "0.0"},
        "targetPairsPerSecond must be above 0",
    ),
    "a target has at most three decimals": Rule(
        {"spec.sampling.targetPairsPerSecond": "99999.999"},
        {"spec.sampling.targetPairsPerSecond": "0.0001"},
        "should match",
    ),
    "a target is a string": Rule(
        {"spec.sampling.targetPairsPerSecond": "2"}, {"spec.sampling.targetPairsPerSecond": 2}, "must be of type string"
    ),
    "unit Key has a key": Rule({"spec.sampling.unit": "Key"}, {"spec.sampling": {"unit": "Key"}}, "unit Key needs"),
    "a class has one rate": Rule(
        rates({"class": "long", "rate": "9%"}),
        rates({"class": "long", "rate": "9%"}, {"class": "long", "rate": "8%"}),
        "Duplicate value",
    ),
    "a class with a rate exists": Rule(
        rates({"class": "default", "rate": "9%"}),
        rates({"class": "short", "rate": "9%"}),
        "classRates names a class that spec.classes does not have",
    ),
    "a conversation does not grow into a class of another rate by its turns": Rule(
        rated_conversations(tools=True), rated_conversations(turns={"min": 4}), "conversations grow"
    ),
    "nor by its length": Rule(
        rates({"class": "long", "rate": "9%"}),
        rated_conversations(tools=True, promptTokens={"min": 8000}),
        "conversations grow",
    ),
    "the rate of a class is above zero": Rule(
        rates({"class": "long", "rate": "0.0001%"}), rates({"class": "long", "rate": "0%"}), "rate must be above 0%"
    ),
    "with rates of classes every criterion names one": Rule(
        rates({"class": "long", "rate": "9%"}),
        rates({"class": "long", "rate": "9%"}) | only(share()),
        "every criterion must name a class",
    ),
    "a cap is at least one": Rule(
        {"spec.admission.maxInFlight": 1}, {"spec.admission.maxInFlight": 0}, "greater than or equal to 1"
    ),
    "a timeout is at least a second": Rule(
        {"spec.admission.timeout": "1s"}, {"spec.admission.timeout": "0s"}, "between 1s and 1h"
    ),
    "a timeout is at most an hour": Rule(
        {"spec.admission.timeout": "1h"}, {"spec.admission.timeout": "1h1s"}, "between 1s and 1h"
    ),
    "a duration has whole units of h, m and s": Rule(
        {"spec.admission.timeout": "1m30s"}, {"spec.admission.timeout": "1.5m"}, "should match"
    ),
    "a queue is bounded": Rule(queue(1024, "1s"), queue(1025, "1s"), "less than"),
    "a queue has a wait": Rule(queue(1, "1s"), queue(1, "0s"), "needs a maxWait above 0s"),
    "a wait is at most a minute": Rule(queue(1, "1m"), queue(1, "61s"), "maxWait must be at most 1m"),
    "a mirror has a pod": Rule({"spec.mirror": {"replicas": 2}}, {"spec.mirror": {"replicas": 0}}, "greater than"),
    "every mirror has a place for a pair": Rule(
        {"spec.mirror": {"replicas": 8}}, {"spec.mirror": {"replicas": 9}}, "admission.maxInFlight is divided"
    ),
    "every mirror has a place in the queue": Rule(
        queue(2, "1s") | {"spec.mirror": {"replicas": 2}},
        queue(1, "1s") | {"spec.mirror": {"replicas": 2}},
        "admission.queue.maxLength is divided",
    ),
    "several mirrors take the credential as key and no field of the body": Rule(
        {"spec.mirror": {"replicas": 2}, "spec.sampling": {"unit": "Key", "key": CREDENTIAL}},
        {"spec.mirror": {"replicas": 2}, "spec.sampling": {"unit": "Key", "key": {"bodyField": "user"}}},
        "needs a key that capture can see",
    ),
    "several mirrors follow no openings": Rule(
        {"spec.mirror": {"replicas": 1}, "spec.sampling": {"unit": "Conversation"}},
        {"spec.mirror": {"replicas": 2}, "spec.sampling": {"unit": "Conversation"}},
        "needs a key that capture can see",
    ),
    "several mirrors follow no openings for lack of a key": Rule(
        {"spec.mirror": {"replicas": 2}, "spec.sampling.onMissingKey": "Skip"},
        {"spec.mirror": {"replicas": 2}, "spec.sampling.onMissingKey": "Lineage"},
        "needs a key that capture can see",
    ),
    "several mirrors keep no conversations of another proxy": Rule(
        {"spec.mirror": {"replicas": 2}, "spec.capture": EXTERNAL, "spec.sampling": {"unit": "Request"}},
        {"spec.mirror": {"replicas": 2}, "spec.capture": EXTERNAL},
        "conversations are scattered",
    ),
    "several mirrors keep no conversations of a gateway": Rule(
        {"spec.mirror": {"replicas": 2}, "spec.capture": ROUTED, "spec.sampling": {"unit": "Request"}},
        {"spec.mirror": {"replicas": 2}, "spec.capture": ROUTED},
        "conversations are scattered",
    ),
    "arms have a template": Rule({}, {"spec.arms.template": ABSENT}, "spec.arms.template: Required value"),
    "arms start from a StatefulSet or a Deployment, not from both": Rule(
        template(statefulSetRef={"name": "chat"}),
        template(statefulSetRef={"name": "chat"}, deploymentRef={"name": "chat"}),
        "exactly one of deploymentRef, statefulSetRef",
    ),
    "arms start from something": Rule(
        template(podTemplate={"spec": {"containers": [{"name": "engine", "image": "e:1"}]}}),
        template(),
        "exactly one of deploymentRef",
    ),
    "a set of leaders is named": Rule(
        template(leaderWorkerSetRef={"name": "big"}), template(leaderWorkerSetRef="big"), "must be of type object"
    ),
    "a run of groups has a name that their labels can hold": Rule(
        template(leaderWorkerSetRef={"name": "big"}) | {"metadata.name": "r" * 35},
        template(leaderWorkerSetRef={"name": "big"}) | {"metadata.name": "r" * 36},
        "at most 35 characters",
    ),
    "capture has another Service than that of a set": Rule(
        {"spec.capture.proxy.serviceName": "chat-candidate-set"},
        {"metadata.name": "a", "spec.capture.proxy.serviceName": "a-candidate-set"},
        "a name that the run needs",
    ),
    "arms behind URLs speak plain HTTP": Rule(
        behind_urls(), behind_urls(candidateURL="https://new:8000"), "should match"
    ),
    "a URL of an arm has no path": Rule(
        behind_urls(baselineURL="http://10.0.0.7"), behind_urls(baselineURL="http://old/v1"), "should match"
    ),
    "a URL of an arm has a port that is one": Rule(
        behind_urls(baselineURL="http://old:65535"), behind_urls(baselineURL="http://old:65536"), "should match"
    ),
    "a baseline behind a URL is named": Rule(
        behind_urls(), behind_urls(baselineURL=ABSENT), "baselineURL: Required value"
    ),
    "a control behind a URL is named where it is enabled": Rule(
        behind_urls(controlURL="http://ctl") | {"spec.arms.control": "Enabled"},
        behind_urls() | {"spec.arms.control": "Enabled"},
        "needs a controlURL with control Enabled",
    ),
    "a control behind a URL is enabled": Rule(
        behind_urls(), behind_urls(controlURL="http://ctl"), "needs a controlURL with control Enabled"
    ),
    "arms behind URLs are changed elsewhere": Rule(
        behind_urls() | {"spec.arms.candidate": {"model": "new"}},
        behind_urls() | {"spec.arms.candidate": {"image": "e:2"}},
        "changed where they run",
    ),
    "no pods are made for arms behind URLs": Rule(
        behind_urls() | {"spec.arms.replicas": 1},
        behind_urls() | {"spec.arms.port": 8000},
        "no pods are made for arms behind URLs",
    ),
    "the hardware of arms behind URLs is reported as unknown": Rule(
        behind_urls(),
        behind_urls() | {"spec.hardware": {"policy": "Require"}},
        "nobody sees the nodes of arms behind URLs",
    ),
    "arms behind URLs have no labels to match": Rule(
        behind_urls() | {"spec.hardware": {"policy": "Report", "nodeSelector": {}}},
        behind_urls() | {"spec.hardware": {"policy": "Report", "matchLabelKeys": ["a"]}},
        "nobody sees the nodes of arms behind URLs",
    ),
    "arms behind URLs use no hours that are known": Rule(
        behind_urls() | {"spec.endConditions.tokens": 1},
        behind_urls() | {"spec.endConditions.gpuHours": 1},
        "endConditions.gpuHours counts what the arms' pods hold",
    ),
    "an image is not empty": Rule(
        {"spec.arms.candidate": {"image": "e:2"}}, {"spec.arms.candidate": {"image": ""}}, "at least 1 char"
    ),
    "args are strings": Rule(
        {"spec.arms.candidate": {"args": []}}, {"spec.arms.candidate": {"args": [1]}}, "must be of type string"
    ),
    "a variable is set once": Rule(
        {"spec.arms.candidate": {"env": [{"name": "A"}, {"name": "B"}]}},
        {"spec.arms.candidate": {"env": [{"name": "A"}, {"name": "A"}]}},
        "Duplicate value",
    ),
    "a variable has a name that is one": Rule(
        {"spec.arms.candidate": {"env": [{"name": "A.B"}]}},
        {"spec.arms.candidate": {"env": [{"name": "A=B"}]}},
        "should match",
    ),
    "a container is named for a shortcut": Rule(
        {"spec.arms.candidate": {"container": "engine", "args": ["-x"]}},
        {"spec.arms.candidate": {"container": "engine"}},
        "candidate.container says whose image, args or env changes",
    ),
    "arms have a candidate": Rule({}, {"spec.arms.candidate": ABSENT}, "spec.arms.candidate: Required value"),
    "control is on or off": Rule({"spec.arms.control": "Enabled"}, {"spec.arms.control": "On"}, "Unsupported value"),
    "a warm-up has no negative size": Rule(
        {"spec.arms.warmup": {"requests": 0}}, {"spec.arms.warmup": {"requests": -1}}, "greater than or equal to 0"
    ),
    "egress rules are objects": Rule(
        {"spec.arms.egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
        {"spec.arms.egress": ["10.0.0.0/8"]},
        "must be of type object",
    ),
    "a Secret is named": Rule(
        {"spec.arms.credentialsSecretRef": {"name": "token"}},
        {"spec.arms.credentialsSecretRef": {"key": "token"}},
        "name: Required value",
    ),
    "a label key is one": Rule(
        {"spec.hardware.matchLabelKeys": ["a/b"]}, {"spec.hardware.matchLabelKeys": ["a/b/c"]}, "should match"
    ),
    "a label key is listed once": Rule(
        {"spec.hardware.matchLabelKeys": ["a", "b"]}, {"spec.hardware.matchLabelKeys": ["a", "a"]}, "Duplicate value"
    ),
    "arms change places or don't": Rule(
        crossover(), crossover() | {"spec.hardware.crossover": "Halfway"}, "Unsupported value"
    ),
    "arms behind URLs change no places": Rule(
        behind_urls(),
        behind_urls() | {"spec.hardware": {"policy": "Report", "crossover": "Enabled"}},
        "arms behind URLs have none here",
    ),
    "groups change no places": Rule(
        template(leaderWorkerSetRef={"name": "big"}),
        template(leaderWorkerSetRef={"name": "big"}) | crossover(),
        "and not groups of them",
    ),
    "what changes places halfway has a half": Rule(
        crossover(decided=True),
        crossover(pairs=1000),
        "hardware.crossover is at half of duration",
    ),
    "half of a run is longer than its warm-up": Rule(
        crossover() | {"spec.duration": "24h", "spec.arms.warmup": {"duration": "11h"}},
        crossover() | {"spec.duration": "24h", "spec.arms.warmup": {"duration": "12h"}},
        "half of duration must be longer than arms.warmup.duration",
    ),
    "a node selector has label keys": Rule(
        {"spec.hardware.nodeSelector": {"a.b/c": "x"}},
        {"spec.hardware.nodeSelector": {"a b": "x"}},
        "a key that no label can have",
    ),
    "a node selector has label values": Rule(
        {"spec.hardware.nodeSelector": {"a": ""}}, {"spec.hardware.nodeSelector": {"a": "-"}}, "should match"
    ),
    "a class has a name of its own": Rule(
        {"spec.classes": [CLASS, CLASS | {"name": "longer"}]},
        {"spec.classes": [CLASS, CLASS]},
        "every class needs a name of its own",
    ),
    "a class is not called default": Rule(
        {"spec.classes": [CLASS, CLASS | {"name": "other"}]},
        {"spec.classes": [CLASS, CLASS | {"name": "default"}]},
        "the class default exists by itself",
    ),
    "there are at most eight classes": Rule(
        {"spec.classes": [CLASS, *(CLASS | {"name": f"c{i}"} for i in range(7))]},
        {"spec.classes": [CLASS, *(CLASS | {"name": f"c{i}"} for i in range(8))]},
        "at most 8 items",
    ),
    "a class has a condition": Rule(
        {"spec.classes.0.when": {"schema": True}}, {"spec.classes.0.when": {}}, "at least one condition"
    ),
    "a class may go by images": Rule(
        {"spec.classes.0.when": {"images": False}}, {"spec.classes.0.when": {"images": "no"}}, "of type boolean"
    ),
    "turns are a range": Rule(
        {"spec.classes.0.when": {"turns": {"min": 2}}}, {"spec.classes.0.when": {"turns": 2}}, "of type object"
    ),
    "a range of turns is not empty": Rule(
        {"spec.classes.0.when": {"turns": {"min": 2, "max": 2}}},
        {"spec.classes.0.when": {"turns": {"min": 3, "max": 2}}},
        "min must not exceed max",
    ),
    "a range is not empty": Rule(
        {"spec.classes.0.when": {"promptTokens": {"min": 5, "max": 5}}},
        {"spec.classes.0.when": {"promptTokens": {"min": 6, "max": 5}}},
        "min must not exceed max",
    ),
    "a class may have floors of its own": Rule(
        {"spec.classes.0.coverage": {"minTokens": "50%"}}, {"spec.classes.0.coverage": {"minTokens": 50}}, "of type"
    ),
    "a latency is in s and ms": Rule({"spec.slo.ttft": "1s500ms"}, {"spec.slo.ttft": "1m"}, "should match"),
    "a comparison is a known one": Rule(
        {"spec.comparison": {"output": "Parity"}}, {"spec.comparison": {"output": "Exact"}}, "Unsupported value"
    ),
    "how answers are compared is said where they are": Rule(
        {"spec.comparison": {"output": "Parity", "ignoreFields": ["choices.message.content.at"]}},
        {"spec.comparison": {"ignoreFields": ["choices.message.content.at"]}},
        "set output to Parity",
    ),
    "the order of lists is ignored where answers are compared": Rule(
        {"spec.comparison": {"output": "Parity", "arrayOrder": "Ignored"}},
        {"spec.comparison": {"output": "None", "arrayOrder": "Ignored"}},
        "set output to Parity",
    ),
    "an ignored field is a path of names": Rule(
        {"spec.comparison": {"output": "Parity", "ignoreFields": ["a.b_1"]}},
        {"spec.comparison": {"output": "Parity", "ignoreFields": ["a[0].b"]}},
        "should match",
    ),
    "an end by matches needs answers that are compared": Rule(
        {"spec.comparison": {"output": "Parity"}, "spec.endConditions.matchRate": "99.5%"},
        {"spec.endConditions.matchRate": "99.5%"},
        "set comparison.output to Parity",
    ),
    "nor do answers that are compared otherwise do for it": Rule(
        {"spec.comparison": {"output": "Parity"}, "spec.endConditions.matchRate": "1%"},
        {"spec.comparison": {"output": "Distribution"}, "spec.endConditions.matchRate": "1%"},
        "set comparison.output to Parity",
    ),
    "that all answers match is never proven": Rule(
        {"spec.comparison": {"output": "Parity"}, "spec.endConditions.matchRate": "99.9999%"},
        {"spec.comparison": {"output": "Parity"}, "spec.endConditions.matchRate": "100%"},
        "matchRate must be above 0% and below 100%",
    ),
    "there is a criterion": Rule(only(share()), only(), "should have at least 1 items"),
    "there are at most ten criteria": Rule(
        only(*(share(name=f"c{i}") for i in range(10))), only(*(share(name=f"c{i}") for i in range(11))), "at most 10"
    ),
    "a criterion has a name of its own": Rule(
        only(share(), share(name="y")), only(share(), share()), "Duplicate value"
    ),
    "a latency has a quantile": Rule(only(latency()), only(latency(quantile=ABSENT)), "quantile is required"),
    "a share has no quantile": Rule(only(share()), only(share(quantile="p95")), "quantile is required"),
    "a quantile is a known one": Rule(
        only(latency(quantile="p99")), only(latency(quantile="p42")), "Unsupported value"
    ),
    "a metric is a known one": Rule(only(latency(metric="E2E")), only(latency(metric="ITL")), "Unsupported value"),
    "pairs weigh alike or by tokens": Rule(
        only(latency(weight="Tokens"), share(name="y", weight="Requests")),
        only(share(weight="Bytes")),
        "Unsupported value",
    ),
    "a criterion's class exists": Rule(
        only(share(**{"class": "default"})),
        only(share(**{"class": "short"})),
        "a criterion names a class that spec.classes does not have",
    ),
    "a margin is below 100%": Rule(
        only(share(margin="99.9999%")), only(share(margin="100%")), "margin must be below 100%"
    ),
    "NotWorse has a margin": Rule(only(latency()), only(latency(require="NotWorse")), "NotWorse needs a margin"),
    "critical is not informational": Rule(
        only(share(critical=True)), only(share(critical=True, informational=True)), "critical or informational"
    ),
    "a criterion needs pairs": Rule(only(share(minPairs=1)), only(share(minPairs=0)), "greater than or equal to 1"),
    "WithinSLO needs an SLO": Rule(
        {"spec.slo": {"e2e": "9s"}}, {"spec.slo": {}}, "a criterion on WithinSLO needs a limit"
    ),
    "an SLO of a class is one too": Rule(
        {"spec.slo": {}, "spec.classes.0.slo": {"ttft": "9s"}}, {"spec.slo": ABSENT}, "a criterion on WithinSLO"
    ),
    "a duration is above zero": Rule(
        {"spec.duration": "1s", "spec.endConditions.minDuration": "1s"},
        {"spec.duration": "0s", "spec.endConditions.minDuration": "0s"},
        "duration must be above 0s",
    ),
    "a duration is at most 30 days": Rule({"spec.duration": "720h"}, {"spec.duration": "720h1s"}, "at most 720h"),
    "minDuration is within the duration": Rule(
        {"spec.endConditions.minDuration": "2h"}, {"spec.endConditions.minDuration": "2h1s"}, "must not exceed duration"
    ),
    "minDuration is 24h unless set": Rule(
        {"spec.endConditions": ABSENT, "spec.duration": "24h"}, {"spec.endConditions": ABSENT}, "default 24h"
    ),
    "an end by pairs needs pairs": Rule(
        {"spec.endConditions.pairs": 1}, {"spec.endConditions.pairs": 0}, "greater than or equal to 1"
    ),
    "an end by accelerator hours needs an hour": Rule(
        {"spec.endConditions.gpuHours": 1}, {"spec.endConditions.gpuHours": 0}, "greater than or equal to 1"
    ),
    "an end by tokens needs tokens": Rule(
        {"spec.endConditions.tokens": 1}, {"spec.endConditions.tokens": 0}, "greater than or equal to 1"
    ),
    "an end once all is decided is asked for or not": Rule(
        {"spec.endConditions.decided": True}, {"spec.endConditions.decided": "yes"}, "must be of type boolean"
    ),
    "a start deadline is above zero": Rule(
        {"spec.startDeadline": "1s"}, {"spec.startDeadline": "0s"}, "startDeadline must be above 0s"
    ),
    "a start deadline is at most a day": Rule({"spec.startDeadline": "24h"}, {"spec.startDeadline": "25h"}, "most 24h"),
    "a guard is a percentage": Rule(
        {"spec.livePathGuard": {"maxLatencyIncrease": "10%"}},
        {"spec.livePathGuard": {"maxLatencyIncrease": "10"}},
        "should match",
    ),
    "a guard has a limit": Rule(
        guard(maxErrorIncrease="1%"), guard(maxErrorIncrease=ABSENT), "needs maxLatencyIncrease, maxErrorIncrease"
    ),
    "a guard pauses at most half of the time": Rule(
        guard(pauseShare="50.0%"), guard(pauseShare="50.0001%"), "pauseShare must be at least 1% and at most 50%"
    ),
    "a guard pauses a hundredth of the time at least": Rule(
        guard(pauseShare="1%"), guard(pauseShare="0.9999%"), "pauseShare must be at least 1% and at most 50%"
    ),
    "a guard pauses": Rule(
        guard(pauseShare="1.5%"), guard(pauseShare="0.0%"), "pauseShare must be at least 1% and at most 50%"
    ),
    "a pause is at least five seconds": Rule(guard(pauseSlot="5s"), guard(pauseSlot="4s"), "between 5s and 5m"),
    "a pause is at most five minutes": Rule(guard(pauseSlot="5m"), guard(pauseSlot="301s"), "between 5s and 5m"),
    "a guard needs an Envoy of ours": Rule(
        guard() | {"spec.capture.maxBodyBytes": "1Mi"},
        guard() | {"spec.capture": EXTERNAL},
        "livePathGuard needs an Envoy of our own",
    ),
    "a guard sees no customers of a gateway": Rule(
        guard() | {"spec.capture.maxBodyBytes": "1Mi"},
        guard() | {"spec.capture": ROUTED},
        "in modes External and HTTPRoute",
    ),
    "a stop has a reason of bounded length": Rule(
        {"spec.stop": {"reason": "a" * 256}}, {"spec.stop": {"reason": "a" * 257}}, "more than 256"
    ),
    "suspend is true or false": Rule({"spec.suspend": True}, {"spec.suspend": "yes"}, "must be of type boolean"),
    "a schedule says something": Rule(
        {"spec.schedule": {"startTime": "2027-01-15T08:00:00Z"}},
        {"spec.schedule": {}},
        "startTime, dailyWindow or both",
    ),
    "a start time has a zone": Rule(
        {"spec.schedule": {"startTime": "2027-01-15T08:00:00+01:00"}},
        {"spec.schedule": {"startTime": "2027-01-15T08:00:00"}},
        "should match",
    ),
    "a start time is of a calendar": Rule(
        {"spec.schedule": {"startTime": "2028-02-29T00:00:00Z"}},
        {"spec.schedule": {"startTime": "2027-02-29T00:00:00Z"}},
        "spec.schedule.startTime",
    ),
    "a start time is of this century": Rule(
        {"spec.schedule": {"startTime": "2000-01-01T00:00:01Z"}},
        {"spec.schedule": {"startTime": "1999-12-31T23:59:59Z"}},
        "startTime is not an instant of a calendar",
    ),
    "a window has two ends": Rule(daily(), daily(to=ABSENT), "to: Required value"),
    "a window is not empty": Rule(
        daily(**{"from": "22:00", "to": "06:00"}), daily(**{"from": "09:00", "to": "09:00"}), "two different times"
    ),
    "a time of day is one": Rule(daily(to="23:59"), daily(to="24:00"), "should match"),
    "a time zone exists": Rule(
        daily(timeZone="America/Argentina/Ushuaia"),
        daily(timeZone="Europe/Atlantis"),
        "timeZone is not the name of a time zone",
    ),
    "arms are kept for a while": Rule(
        {"spec.keepArms": {"for": "24h"}}, {"spec.keepArms": {"for": "25h"}}, "above 0s and at most 24h"
    ),
    "arms are kept for some time": Rule(
        {"spec.keepArms": {"for": "1s"}}, {"spec.keepArms": {"for": "0s"}}, "above 0s and at most 24h"
    ),
    "whoever keeps arms says how long": Rule(
        {"spec.keepArms": {"for": "10m"}}, {"spec.keepArms": {}}, "for: Required value"
    ),
    "what is kept is kept for a time": Rule(
        {"spec.ttlAfterFinished": "168h"}, {"spec.ttlAfterFinished": "a week"}, "should match"
    ),
}


def without_absent(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes, where fields marked absent inside a list of criteria are left out."""
    return {
        path: [{k: v for k, v in item.items() if v is not ABSENT} if isinstance(item, dict) else item for item in value]
        if isinstance(value, list)
        else value
        for path, value in changes.items()
    }


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_what_keeps_the_rule_is_taken(runs: Runs, rule: Rule) -> None:
    assert runs.refusal(manifest(without_absent(rule.accepted))) is None


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_what_breaks_the_rule_is_refused_and_told_why(runs: Runs, rule: Rule) -> None:
    assert rule.message in (runs.refusal(manifest(without_absent(rule.refused))) or "accepted")
