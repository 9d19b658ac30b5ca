"""The valid manifest that every case of the rules starts from, and how a case changes it."""

import copy
from collections.abc import Mapping
from typing import Any

import yaml
from shadowrun_operator.api.run import VERSION

GROUP = "shadowrun.test"
"""API group under which the tests serve the definition."""

BASE = """
kind: ShadowRun
metadata: {name: prefix-cache}
spec:
  primary: {service: {name: chat, port: 8000}}
  capture: {proxy: {serviceName: chat-shadowed}}
  sampling: {unit: Conversation, rate: 5%, key: {header: x-conversation-id}}
  admission: {maxInFlight: 8, timeout: 60s}
  arms:
    template: {deploymentRef: {name: chat}}
    candidate: {patch: {spec: {template: {spec: {containers: [{name: engine, args: [--cache]}]}}}}}
  hardware: {matchLabelKeys: [nvidia.com/gpu.product], nodeSelector: {pool: test}}
  classes:
  - {name: long, when: {promptTokens: {min: 8000}}}
  slo: {ttft: 2s, tpot: 100ms}
  criteria:
  - {name: long-starts-faster, metric: TTFT, quantile: p95, class: long, require: Better}
  - {name: slo, metric: WithinSLO, require: NotWorse, margin: 1%}
  duration: 2h
  endConditions: {minDuration: 1h, pairs: 20000}
"""

ABSENT = object()
"""In a change: the field is left out."""


def manifest(changes: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The base with changes by dotted path below the object; numbers in a path are places in a list."""
    document: dict[str, Any] = copy.deepcopy(dict(base)) if base is not None else _base()
    for path, value in changes.items():
        steps: list[Any] = [int(step) if step.isdigit() else step for step in path.split(".")]
        *parents, last = steps
        at: Any = document
        for step in parents:
            at = at[step] if isinstance(at, list) else at.setdefault(step, {})
        if value is ABSENT:
            del at[last]
        else:
            at[last] = value
    return document


def _base() -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", **yaml.safe_load(BASE)}
