"""The commands of the documents that ask a cluster, carried out on an API server, with names that are there.

What deletes does so for show (`--dry-run=server`): the cluster may be others' too.
"""

import json
import re
from collections.abc import Iterator

import msgspec
import pytest
import yaml
from shadowrun_operator.api.run import PLURAL
from shadowrun_operator.api.status import ReportRef, Status
from shadowrun_operator.cli import reading
from shadowrun_operator.cli.main import main
from shadowrun_operator.manifests.names import PRIMARY_ANNOTATION

from tests.integration.api.conftest import NAMESPACE, HasApi, Runs
from tests.integration.api.manifest import GROUP, manifest
from tests.integration.api.test_command import NAME, ended
from tests.unit.judge.synthetic import judged, recorded
from tests.unit.surfaces.test_docs import ALL

pytestmark = [pytest.mark.surfaces, pytest.mark.e2e]

RESOURCE = f"{PLURAL}.{GROUP}"
SERVICE = "documented-shadowed"
WORDS = {
    "NAMESPACE": NAMESPACE,
    "inference": NAMESPACE,
    "NAME": NAME,
    "SERVICE": SERVICE,
    "80h": "20s",
    "--timeout=80h": "--timeout=20s",
    "shadowruns.shadowrun.dev": RESOURCE,
    '{"spec": {"duration": "30h"}}': '{"spec": {"duration": "1h"}}',
}
ASKED = sorted({tuple(words) for _, words in ALL})
"""Every command of the documents."""


def here(words: tuple[str, ...]) -> list[str]:
    """A command with names that exist, and the definition under the tests' group."""
    put = [WORDS.get(word, word) for word in words]
    put = [re.sub(r"^shadowruns?(?=$|/)", RESOURCE, word) if i else word for i, word in enumerate(put)]
    return [re.sub(r"\bNAME\b", NAME, word) for word in put]


@pytest.fixture
def on_stage(server: HasApi, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Iterator[HasApi]:
    """A run that has passed, its report, and the Service that its customers call."""
    monkeypatch.setattr(reading, "GROUP", GROUP)
    report = msgspec.json.encode(judged(recorded())).decode()
    objects = [
        {"kind": "ConfigMap", "metadata": {"name": f"{NAME}-report"}, "data": {"report.json": report}},
        {
            "kind": "Service",
            "metadata": {"name": SERVICE, "annotations": {PRIMARY_ANNOTATION: json.dumps({"app": "chat"})}},
            "spec": {"selector": {"a": "b"}, "ports": [{"port": 8000}]},
        },
    ]
    text = yaml.safe_dump_all({"apiVersion": "v1", **item} for item in objects)
    server.kubectl("apply", "--server-side", "--force-conflicts", "-n", NAMESPACE, "-f", "-", input=text)
    runs.create(manifest({}))
    reported = Status(report_ref=ReportRef(name=f"{NAME}-report")).to_json()
    runs.write_status(NAME, {**ended("Pass"), "reportRef": reported["reportRef"]})
    yield server
    runs.delete(NAME)


@pytest.mark.parametrize("words", [w for w in ASKED if w[0] == "kubectl"], ids=" ".join)
def test_kubectl_can_do_it(on_stage: HasApi, words: tuple[str, ...]) -> None:
    command = here(words)[1:]
    if "delete" in command:
        command.append("--dry-run=server")
    said = on_stage.kubectl(*command, timeout=40)
    if "deployment,poddisruptionbudget,secret" not in command:  # of which there are none
        assert said.strip()
    if command[-1].startswith("jsonpath"):
        assert json.loads(said) == {"app": "chat"}


@pytest.mark.parametrize(
    "words", [w for w in ASKED if w[:2] in {("shadowrun", "gate"), ("shadowrun", "report")}], ids=" ".join
)
def test_the_command_answers(on_stage: HasApi, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*here(words)[1:], "--kubeconfig", str(on_stage.kubeconfig_path)]) == 0
    assert f"{NAME}: Pass" in capsys.readouterr().out
