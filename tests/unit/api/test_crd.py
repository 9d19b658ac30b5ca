"""The CRD: generated, current, structural, described and bounded everywhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from shadowrun_operator.api import crd
from shadowrun_operator.api.block import Block

pytestmark = pytest.mark.operator

STRUCTURAL = {
    "type", "description", "properties", "required", "items", "additionalProperties", "enum", "default", "pattern",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip


def schema() -> dict[str, Any]:
    """The schema of the whole object."""
    (version,) = crd.custom_resource_definition()["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node below one, with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in node:
            yield from nodes(node[word], f"{path}[]")


def ours() -> Iterator[tuple[str, dict[str, Any]]]:
    """The nodes of spec and status."""
    return ((path, node) for path, node in nodes(schema()) if path.startswith((".spec", ".status")))


def test_the_file_is_what_the_models_generate() -> None:
    assert crd.FILE.read_text(encoding="utf-8") == crd.rendered()


def test_check_tells_a_current_file_from_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "crd.yaml"
    assert crd.main(["--check", "--file", str(file)]) == 1
    assert crd.main(["--file", str(file)]) == 0
    assert crd.main(["--check", "--file", str(file)]) == 0
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert crd.main(["--check", "--file", str(file)]) == 1
    assert "make crd" in capsys.readouterr().err


def test_the_file_is_read_back_as_the_definition() -> None:
    assert yaml.safe_load(crd.rendered()) == crd.custom_resource_definition()


def test_only_structural_words_are_used() -> None:
    assert {word for _, node in nodes(schema()) for word in node} <= STRUCTURAL


def test_every_field_is_described_in_a_sentence() -> None:
    fields = [(path, node) for path, node in ours() if not path.endswith("[]")]
    assert [path for path, node in fields if not node.get("description", "").endswith((".", "?"))] == []


def test_everything_that_can_grow_has_a_bound() -> None:
    unbounded = [
        path
        for path, node in ours()
        if (node.get("type") == "string" and "maxLength" not in node and "enum" not in node)
        or (node.get("type") == "array" and "maxItems" not in node)
        or (node.get("type") == "integer" and not {"minimum", "maximum"} <= node.keys())
        or ("additionalProperties" in node and "maxProperties" not in node)
    ]
    assert unbounded == []


def test_no_number_has_a_fraction() -> None:
    assert [path for path, node in ours() if node.get("type") == "number"] == []


def test_every_rule_has_a_message() -> None:
    rules = [rule for _, node in nodes(schema()) for rule in node.get("x-kubernetes-validations", [])]
    assert len(rules) > 30
    assert [rule for rule in rules if not rule.get("message")] == []


def test_every_block_of_the_spec_may_change_or_is_frozen_on_purpose() -> None:
    frozen = {rule["fieldPath"].split(".")[2] for rule in schema()["x-kubernetes-validations"] if "fieldPath" in rule}
    assert set(schema()["properties"]["spec"]["properties"]) - frozen == {
        "admission",
        "suspend",
        "stop",
        "keepArms",
        "ttlAfterFinished",
    }


def test_the_resource_has_one_short_name_and_no_category() -> None:
    names = crd.custom_resource_definition()["spec"]["names"]
    assert names["shortNames"] == ["sr"]
    assert "categories" not in names


class Twig(Block):
    """A model that contains itself."""

    twig: "Twig | None" = None
    """Itself."""


class Fork(Block):
    """A model with a union."""

    prong: int | str
    """Either."""


@pytest.mark.parametrize(("model", "message"), [(Twig, "contains itself"), (Fork, "is a union")])
def test_what_cannot_be_structural_is_refused(model: type[Block], message: str) -> None:
    assert issubclass(model, BaseModel)
    with pytest.raises(ValueError, match=message):
        crd.structural(model)
