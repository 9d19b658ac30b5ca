"""The runs that the bench creates are runs that an operator would accept as they are."""

import pytest
from shadowrun_operator.api.spec import Spec

from tests.bench.scale.__main__ import DOCUMENT, NAME, shadow_run

pytestmark = pytest.mark.operator


@pytest.mark.parametrize("more", [{}, {"schedule": {"startTime": "2099-01-01T00:00:00Z"}}])
def test_its_runs_can_be_read(more: dict[str, object]) -> None:
    spec = Spec.model_validate(shadow_run("a", "n", **more)["spec"])
    assert spec.arm_names == ("baseline", "candidate")
    assert spec.capture.service_name == "a-shadowed"


def test_its_table_has_a_place() -> None:
    assert f"<!-- bench {NAME} -->" in DOCUMENT.read_text(encoding="utf-8")
