"""The CustomResourceDefinition, generated from the models: `python -m shadowrun_operator.api.crd [--check]`.

What pydantic emits is turned into a structural schema: references are inlined, optional fields are absent instead of
null, and nothing is kept that the API server refuses. Rules over more than one block, and what may not change once
a run has started, are added at the root. Run as a program it writes (or checks) the file in `crds/`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from shadowrun_operator.api.block import Block
from shadowrun_operator.api.run import (
    GROUP,
    GROUPED_NAME_LENGTH,
    KIND,
    NAME_LENGTH,
    NAME_PATTERN,
    PLURAL,
    SHORT_NAME,
    SINGULAR,
    VERSION,
    ShadowRun,
)
from shadowrun_operator.api.spec import Spec
from shadowrun_operator.api.status import Status

FILE = Path("crds") / f"{PLURAL}.{GROUP}.yaml"

Json = dict[str, Any]

_MAY_CHANGE = {"sampling", "admission", "duration", "suspend", "stop", "keepArms", "ttlAfterFinished"}
"""Blocks that may change once a run is active; of sampling only rate and target, and the duration only shrinks."""

_ARMS = ("baseline", "candidate", "control")
_DERIVED_NAMES = ("mirror", "mirror-pods", *_ARMS, *(f"{arm}-set" for arm in _ARMS))
"""What the operator, or the controller of an arm that it made, appends to a run's name for Services."""

_ACTIVE = "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase != 'Pending'"


def structural(model: type[Block]) -> Json:
    """Structural schema of a model, as `apiextensions.k8s.io/v1` takes it."""
    raw = model.model_json_schema(by_alias=True)
    schema: Json = _node(raw, raw.get("$defs", {}), ())
    return schema


def _node(node: Json, definitions: Json, path: tuple[str, ...]) -> Json:
    """One schema node without references, titles, nulls and constants."""
    node = {key: value for key, value in node.items() if key not in ("title", "$defs")}
    if "$ref" in node:
        name = node.pop("$ref").rsplit("/", 1)[-1]
        if name in path:
            raise ValueError(f"{name} contains itself; a structural schema cannot")
        return _node({**definitions[name], **node}, definitions, (*path, name))
    if "anyOf" in node:
        choices = [choice for choice in node.pop("anyOf") if choice.get("type") != "null"]
        if len(choices) != 1:
            raise ValueError(f"{choices} is a union; a structural schema has none")
        return _node({**choices[0], **node}, definitions, path)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "default" in node and node["default"] is None:
        del node["default"]
    elif "default" in node:
        node["default"] = _without_null(node["default"])
    if node.get("additionalProperties") is True:
        del node["additionalProperties"]
        node["x-kubernetes-preserve-unknown-fields"] = True
    if isinstance(node.get("additionalProperties"), dict):
        node["additionalProperties"] = _node(node["additionalProperties"], definitions, path)
    if isinstance(node.get("items"), dict):
        node["items"] = _node(node["items"], definitions, path)
    if isinstance(node.get("properties"), dict):
        node["properties"] = {key: _node(value, definitions, path) for key, value in node["properties"].items()}
    return node


def _without_null(value: Any) -> Any:
    """A default without absent fields: the API server takes no null."""
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    return value


def _unchanged(field: str) -> Json:
    """A rule at the root: a field of the spec is what it was, once the run is active."""
    parent, _, name = f"self.spec.{field}".rpartition(".")
    old_parent = parent.replace("self", "oldSelf", 1)
    new, old = f"{parent}.{name}", f"{old_parent}.{name}"
    same = f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"
    return {
        "rule": f"!({_ACTIVE}) || ({same})",
        "message": f"spec.{field} decides the evidence and cannot change once the run has started",
        "fieldPath": f".spec.{field}",
    }


def _frozen_fields() -> list[str]:
    """Paths below `spec` that cannot change once a run is active."""
    names = [info.alias or name for name, info in Spec.model_fields.items()]
    return [name for name in names if name not in _MAY_CHANGE] + [
        f"sampling.{name}" for name in ("unit", "key", "onMissingKey", "classRates")
    ]


def _root_rules() -> list[Json]:
    """Rules that need the object's name, or both its spec and its status."""
    taken = ", ".join(f"self.metadata.name + '-{part}'" for part in _DERIVED_NAMES)
    return [
        {
            "rule": f"size(self.metadata.name) <= {NAME_LENGTH} && self.metadata.name.matches('{NAME_PATTERN}')",
            "message": f"a run's name must be a DNS label that starts with a letter, at most {NAME_LENGTH} characters",
        },
        {
            "rule": "!has(self.spec.arms.template.leaderWorkerSetRef)"
            f" || size(self.metadata.name) <= {GROUPED_NAME_LENGTH}",
            "message": "with arms.template.leaderWorkerSetRef a run's name has at most"
            f" {GROUPED_NAME_LENGTH} characters: labels of the arms' pods are made from it",
        },
        {
            "rule": f"!has(self.spec.capture.proxy) || !(self.spec.capture.proxy.serviceName in [{taken}])",
            "message": "capture.proxy.serviceName is a name that the run needs for a Service of its own",
            "fieldPath": ".spec.capture",
        },
        {
            "rule": f"!has(self.spec.capture.external) || !(self.spec.capture.external.serviceName in [{taken}])",
            "message": "capture.external.serviceName is a name that the run needs for a Service of its own",
            "fieldPath": ".spec.capture",
        },
        {
            "rule": f"!has(self.spec.capture.httpRoute) || !(self.spec.capture.httpRoute.serviceName in [{taken}])",
            "message": "capture.httpRoute.serviceName is a name that the run needs for a Service of its own",
            "fieldPath": ".spec.capture",
        },
        {
            "rule": f"!({_ACTIVE}) || duration(self.spec.duration) <= duration(oldSelf.spec.duration)",
            "message": "duration can only be shortened once the run has started",
            "fieldPath": ".spec.duration",
        },
        {
            "rule": f"!({_ACTIVE}) || size(self.spec.sampling.classRates) == 0"
            " || self.spec.sampling.rate == oldSelf.spec.sampling.rate",
            "message": "with sampling.classRates the rate cannot change once the run has started: weights rest on it",
            "fieldPath": ".spec.sampling",
        },
        *(_unchanged(field) for field in _frozen_fields()),
    ]


def _column(name: str, path: str, kind: str = "string", description: str = "", priority: int = 0) -> Json:
    """A column of `kubectl get`."""
    column: Json = {"name": name, "type": kind, "jsonPath": path}
    if description:
        column["description"] = description
    return column | ({"priority": priority} if priority else {})


def _columns() -> list[Json]:
    """Columns of `kubectl get`; those of priority 1 appear with `-o wide`."""
    return [
        _column("PHASE", ".status.phase", description="Summary of the conditions."),
        _column("VERDICT", ".status.verdict", description="Conclusion of the run, set at its end."),
        _column("SEEN", ".status.funnel.requests.seen", "integer", "Requests in scope at capture."),
        _column("PAIRS", ".status.pairs", "integer", "Counted pairs."),
        _column("WITHIN-SLO", ".status.withinSLO", description="Shares within the SLO, candidate and baseline."),
        _column("EXPIRES", ".status.expiryTime", description="When everything ends at the latest."),
        _column("AGE", ".metadata.creationTimestamp", "date"),
        _column("RATE", ".spec.sampling.rate", description="Share of the traffic that is copied.", priority=1),
        _column("SELECTED", ".status.funnel.requests.selected", "integer", "Requests to be measured.", 1),
        _column("ADMITTED", ".status.funnel.requests.admitted", "integer", "Requests given to every arm.", 1),
        _column("STARTED", ".status.startTime", description="When the first counted pair was complete.", priority=1),
        _column("END-REASON", ".status.endReason", description="Why the run ended.", priority=1),
        _column("REASON", ".status.reason", description="Machine word for the verdict.", priority=1),
        _column("MESSAGE", ".status.message", description="A sentence with the numbers.", priority=1),
    ]


def custom_resource_definition() -> Json:
    """The whole definition."""
    spec, status = structural(Spec), structural(Status)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT_NAME],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {
                        "openAPIV3Schema": {
                            "description": (ShadowRun.__doc__ or "").strip(),
                            "type": "object",
                            "required": ["spec"],
                            "x-kubernetes-validations": _root_rules(),
                            "properties": {
                                "apiVersion": {"type": "string", "description": "Version of the API."},
                                "kind": {"type": "string", "description": "Kind of the object."},
                                "metadata": {"type": "object"},
                                "spec": spec,
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: two equal bounds are two bounds."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def rendered() -> str:
    """The definition as the text of its file."""
    head = "# Generated from shadowrun_operator.api by `make crd`; change the models, not this file.\n"
    return head + yaml.dump(
        custom_resource_definition(), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or with `--check` compare it; 1 when it differs."""
    parser = argparse.ArgumentParser(description="Generate the CustomResourceDefinition of ShadowRun.")
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    parser.add_argument("--file", type=Path, default=FILE, help=f"default: {FILE}")
    options = parser.parse_args(arguments)
    text = rendered()
    if not options.check:
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(text, encoding="utf-8")
        return 0
    if options.file.exists() and options.file.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{options.file} is not what the models generate; run `make crd`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
