"""Secrets planted in prompts, answers, headers and keys must not be found in anything that was written."""

import json
import urllib.request

import pytest

from tests.e2e.world import World, env_patch, shadow_run

pytestmark = [pytest.mark.mirror, pytest.mark.e2e]

PLANTED = {
    "prompt": "canary-prompt-7f3a",
    "key": "canary-key-91bc",
    "header": "canary-header-44de",
    "credential": "canary-credential-c0ff",
    "baggage": "canary-baggage-5a5a",
    "query": "canary-query-2b2b",
    "answer": "canary-answer-e1e1",
}


def ask(port: int, number: int) -> str:
    """One request full of secrets; its answer."""
    body = {
        "model": "chat",
        "stream": number % 2 == 0,
        "max_tokens": 4,
        "user": PLANTED["key"],
        "messages": [{"role": "user", "content": f"{PLANTED['prompt']} number {number}"}],
    }
    headers = {
        "content-type": "application/json",
        "x-conversation-id": f"{PLANTED['key']}-{number}",
        "x-customer-note": PLANTED["header"],
        "authorization": f"Bearer {PLANTED['credential']}",
        "baggage": f"note={PLANTED['baggage']}",
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions?note={PLANTED['query']}",
        json.dumps(body).encode(),
        headers=headers,
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        told: bytes = answer.read()
    return told.decode()


def test_no_secret_is_found_in_anything_that_was_written(world: World) -> None:
    # By way of a Secret, so that the planted answer stands nowhere in plain text but in answers.
    world.kubectl("create", "secret", "generic", "answers", f"--from-literal=ANSWER_BEGINS={PLANTED['answer']}")
    world.kubectl("set", "env", "deployment/chat", "--from=secret/answers")
    world.kubectl("rollout", "status", "deployment/chat", "--timeout=60s", timeout=70)
    world.apply(shadow_run("canary", patch=env_patch(ERROR_RATE="0.3"), duration="20s"))
    world.until("capture in front", lambda: any("capture" in pod for pod in world.endpoints("chat-shadowed")), 90)
    world.wait("canary", "copying", lambda s: s.get("phase") in ("WarmingUp", "Running"), 120)
    written: dict[str, str] = {}
    with world.cluster.port_forward("service/chat-shadowed", 8000, "-n", world.namespace) as port:
        number = 0
        while world.status("canary").get("phase") in ("WarmingUp", "Running"):
            for _ in range(10):
                number += 1
                assert PLANTED["answer"] in ask(port, number)
            if number % 30 == 0:
                written |= {f"{name} at {number}": text for name, text in world.everything_written().items()}
    status = world.wait_complete("canary", 120)
    written |= world.everything_written()
    assert any(name.startswith("metrics of canary-mirror") for name in written), "the mirror may have gone by the end"
    assert status["funnel"]["requests"]["admitted"] > 20, "the secrets did pass through"
    found = {(what, place) for what, secret in PLANTED.items() for place, text in written.items() if secret in text}
    assert found == set()
