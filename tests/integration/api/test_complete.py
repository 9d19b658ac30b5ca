"""The tables of the rules leave no rule out. Needs no cluster."""

import pytest

from tests.integration.api.test_changes import NO_LONGER_POSSIBLE, RATE_OF_CLASSES
from tests.integration.api.test_rules import RULES
from tests.unit.api.test_crd import nodes, schema

pytestmark = pytest.mark.operator

MESSAGES = [rule["message"] for _, node in nodes(schema()) for rule in node.get("x-kubernetes-validations", [])]


@pytest.mark.parametrize("message", MESSAGES)
def test_every_rule_has_an_object_that_breaks_it(message: str) -> None:
    expected = [rule.message for rule in RULES.values()] + [piece for _, piece in NO_LONGER_POSSIBLE.values()]
    expected.append(RATE_OF_CLASSES)
    assert [piece for piece in expected if piece in message] != []
