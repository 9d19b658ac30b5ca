"""The stage of demo and bench: in which order things are asked of a cluster, and when it stops asking."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.demo.scenarios import SCENARIOS, is_customers
from examples.demo.stage import Stage

pytestmark = pytest.mark.surfaces

DEMO = SCENARIOS["prefix-cache"]
CUSTOMERS = [m for m in DEMO.site() if is_customers(m)]
PRIMARY = [m for m in DEMO.site() if not is_customers(m)]


class Asked:
    """A cluster that notes in words what it is asked. `answers` gives, by the first two words, what it says in turn."""

    kubeconfig_path = Path("kubeconfig")

    def __init__(self, **answers: list[str]) -> None:
        self.done: list[str] = []
        self._answers = answers

    def create(self) -> None:
        self.done.append("create")

    def build_image(self, tag: str, *_: Any) -> None:
        self.done.append(f"build {tag}")

    def load_docker_image(self, tag: str) -> None:
        self.done.append(f"load {tag}")

    def helm(self, *args: str, **_: Any) -> None:
        self.done.append(f"helm {args[0]}")

    def kubectl(self, *args: str, input: str = "", **_: Any) -> str:  # noqa: A002
        words = args[2:] if args[0] == "-n" else args
        applied = [m["metadata"]["name"] for m in yaml.safe_load_all(input)] if input else []
        self.done.append(" ".join([*words[:2], *applied]) if words[0] != "apply" else f"apply {' '.join(applied)}")
        said = self._answers.get(f"{words[0]}_{words[1]}", [""])
        return said.pop(0) if len(said) > 1 else said[0]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.demo.stage.time.sleep", lambda _: None)


def on(cluster: Asked) -> Stage:
    return Stage(cluster, "demo")  # type: ignore[arg-type]


def status(**fields: Any) -> str:
    return json.dumps({"status": fields})


def test_the_primary_stands_on_an_empty_namespace_before_anything_else() -> None:
    cluster = Asked(get_namespace=["namespace/demo"])
    on(cluster).prepare(DEMO.images, PRIMARY)
    assert cluster.done[0] == "create"
    assert cluster.done[1 : 1 + 2 * len(DEMO.images)] == [
        f"{verb} {image.tag}" for image in DEMO.images for verb in ("build", "load")
    ]
    assert cluster.done[-6:] == [
        "get namespace",
        "delete shadowruns",  # while the operator can give the path back
        "delete namespace",
        "create namespace",
        "apply chat chat",
        "rollout status",
    ]


def test_where_there_is_no_namespace_there_is_nothing_to_clear() -> None:
    cluster = Asked()
    on(cluster).clear()
    assert cluster.done == ["get namespace"]


def test_customers_come_when_the_service_is_there_that_they_call() -> None:
    cluster = Asked(get_service=["", "", "service/chat-shadowed"])
    on(cluster).start(DEMO.run(), CUSTOMERS)
    assert cluster.done == ["apply prefix-cache", *["get service"] * 3, "apply customers"]


def test_a_service_that_does_not_come_ends_it_with_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [{"type": "Accepted", "status": "False", "reason": "NotFound", "message": "no Service chat"}]
    cluster = Asked(get_shadowrun=[status(conditions=waiting)])
    seconds = iter(range(0, 1000, 20))
    monkeypatch.setattr("examples.demo.stage.time.monotonic", lambda: next(seconds))
    with pytest.raises(SystemExit, match="no Service chat"):
        on(cluster).start(DEMO.run(), CUSTOMERS)
    assert "apply customers" not in cluster.done


@pytest.mark.parametrize(
    "last",
    [
        status(phase="Complete", verdict="Pass"),
        status(conditions=[{"type": "Accepted", "status": "False", "reason": "Refused"}]),
    ],
)
def test_a_run_is_followed_until_nothing_will_change_any_more(last: str) -> None:
    cluster = Asked(get_shadowrun=["{}", status(phase="Running"), last])
    seen = list(on(cluster).follow("prefix-cache"))
    assert seen == [{}, {"phase": "Running"}, json.loads(last)["status"]]
