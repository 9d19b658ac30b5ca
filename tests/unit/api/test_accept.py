"""What is not done yet is named, and what is done is not."""

from typing import Any

import pytest
from shadowrun_operator.api.accept import not_implemented

from tests.unit.api.example import spec

pytestmark = pytest.mark.operator

ARMS = {"template": {"deploymentRef": {"name": "chat"}}, "candidate": {}}
KEYED = {"unit": "Conversation", "key": {"header": "x-conversation-id"}}

NOT_YET: dict[str, dict[str, Any]] = {
    "spec.capture.paths": {"capture": {"proxy": {"serviceName": "x"}, "paths": ["/v1/completions", "/v1/audio"]}},
    "spec.capture.proxy.port": {"capture": {"proxy": {"serviceName": "x", "port": 8001}}},
    "spec.comparison.output Distribution": {"comparison": {"output": "Distribution"}},
    "spec.comparison.checks": {"comparison": {"output": "Parity", "checks": ["JSONSchema"]}},
}

DONE: dict[str, dict[str, Any]] = {
    "the smallest spec": {},
    "arms from a StatefulSet": {"arms": {"template": {"statefulSetRef": {"name": "chat"}}, "candidate": {}}},
    "arms of groups": {"arms": {"template": {"leaderWorkerSetRef": {"name": "big"}}, "candidate": {}}},
    "arms from a template": {"arms": {"template": {"podTemplate": {"spec": {}}}, "candidate": {"image": "e:2"}}},
    "arms behind URLs": {
        "arms": {
            "template": {"external": {"baselineURL": "http://a", "candidateURL": "http://b"}},
            "candidate": {},
        },
        "hardware": {"policy": "Report"},
    },
    "a key in a header": {"sampling": KEYED},
    "leaving out what has no key": {"sampling": KEYED | {"onMissingKey": "Skip"}},
    "a unit Key with a header": {"sampling": KEYED | {"unit": "Key"}},
    "the primary's port on capture": {"capture": {"proxy": {"serviceName": "x", "port": 8000}}},
    "every protocol under any prefix": {
        "capture": {
            "proxy": {"serviceName": "x"},
            "paths": [
                "/openai/v1/chat/completions",
                "/v1/completions",
                "/v1/responses",
                "/v1/embeddings",
                "/anthropic/v1/messages",
            ],
        }
    },
    "copies by another proxy": {"capture": {"mode": "External", "external": {"serviceName": "x"}}},
    "copies by a gateway": {
        "capture": {"mode": "HTTPRoute", "httpRoute": {"name": "front", "rule": "chat", "serviceName": "x"}}
    },
    "a key in the body": {"sampling": {"unit": "Key", "key": {"bodyField": "user"}}},
    "the credential as key": {"sampling": {"unit": "Key", "key": {"credential": True}}},
    "conversations by their opening": {"sampling": {"unit": "Conversation"}},
    "conversations by their opening where there is no key": {"sampling": KEYED | {"onMissingKey": "Lineage"}},
    "rates of classes": {"sampling": {"classRates": [{"class": "default", "rate": "2%"}]}},
    "a rate that adapts": {"sampling": {"targetPairsPerSecond": "0.5"}},
    "a queue": {"admission": {"queue": {"maxLength": 1, "maxWait": "2s"}}},
    "several mirrors": {"mirror": {"replicas": 2}},
    "a guard of the live path": {"livePathGuard": {"maxErrorIncrease": "1%"}},
    "replicas of arms for single requests": {"arms": ARMS | {"replicas": 2}},
    "replicas of arms for conversations": {"arms": ARMS | {"replicas": 2}, "sampling": KEYED},
    "arms that change places": {"hardware": {"crossover": "Enabled"}},
    "a control": {"arms": ARMS | {"control": "Enabled"}},
    "ends by pairs, tokens and accelerator hours": {"endConditions": {"pairs": 1, "tokens": 1, "gpuHours": 16}},
    "an end once all is decided": {"endConditions": {"decided": True}},
    "a list of models": {"capture": {"proxy": {"serviceName": "x"}, "models": ["m"]}},
    "a comparison that asks for nothing": {"comparison": {"output": "None"}},
    "answers that are compared": {
        "comparison": {"output": "Parity", "ignoreFields": ["timings"], "arrayOrder": "Ignored"},
        "endConditions": {"matchRate": "99%"},
    },
    "a stop": {"stop": {"reason": "enough"}},
}


@pytest.mark.parametrize(("field", "blocks"), NOT_YET.items(), ids=NOT_YET.keys())
def test_a_field_that_is_not_done_yet_is_named(field: str, blocks: dict[str, Any]) -> None:
    (sentence,) = not_implemented(spec(**blocks))
    assert sentence.startswith(field)
    assert sentence.endswith(".")


@pytest.mark.parametrize("blocks", DONE.values(), ids=DONE.keys())
def test_what_is_done_is_not_named(blocks: dict[str, Any]) -> None:
    assert not_implemented(spec(**blocks)) == []


def test_everything_not_done_is_named_at_once() -> None:
    found = not_implemented(
        spec(
            capture={"proxy": {"serviceName": "x", "port": 8001}},
            comparison={"output": "Distribution", "checks": ["ToolCalls"]},
        )
    )
    assert [sentence.split()[0] for sentence in found] == [
        "spec.capture.proxy.port",
        "spec.comparison.output",
        "spec.comparison.checks",
    ]
