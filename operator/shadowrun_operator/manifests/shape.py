"""Whether a pod template that no API server has seen has the shape that everything here takes for granted. Pure.

It looks at what is read of a template and at nothing else: the rest is the API server's to judge.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shadowrun_operator.api.block import QUALIFIED


@dataclass(frozen=True)
class _Value:
    """A single value, and what it has to be."""

    said: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class _Map:
    """Any keys that fit, each with the same kind of value."""

    value: _Value
    fits: Callable[[str], bool] = lambda key: True


_Shape = _Value | _Map | Mapping[str, Any] | list[Any]
"""Of a mapping the fields that matter, where `name!` has to be there; of a list the shape of each entry."""

_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(QUALIFIED)

_text = _Value("a string", lambda value: isinstance(value, str))
_flag = _Value("true or false", lambda value: isinstance(value, bool))
_port = _Value("a port number", lambda value: type(value) is int and 0 < value < 65536)
_quantity = _Value("a quantity", lambda value: isinstance(value, str | int | float) and not isinstance(value, bool))
_label = _Value("the value of a label", lambda value: isinstance(value, str) and _LABEL.fullmatch(value) is not None)
_amounts = _Map(_quantity)

_CONTAINER: _Shape = {
    "name!": _text,
    "restartPolicy": _text,
    "ports": [{"name": _text, "containerPort!": _port}],
    "resources": {"requests": _amounts, "limits": _amounts},
    "volumeMounts": [{"name": _text, "readOnly": _flag}],
    "volumeDevices": [{"name": _text}],
}
_SPEC: _Shape = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [
        {
            "name!": _text,
            "persistentVolumeClaim": {"claimName!": _text, "readOnly": _flag},
            "projected": {"sources": [{}]},
        }
    ],
    "resourceClaims": [{"resourceClaimName": _text}],
    "nodeSelector": _Map(_label, lambda key: _KEY.fullmatch(key) is not None),
    "tolerations": [{"key": _text, "operator": _text, "value": _text, "effect": _text}],
    "overhead": _amounts,
}


def misshapen(spec: Any) -> str | None:
    """Where the spec of a template has another shape, and which it should be, as "spec.x to be y"."""
    return _misshapen("spec", spec, _SPEC)


def without_null(value: Any) -> Any:
    """A document without the fields that are null: to the API server they are not there."""
    if isinstance(value, dict):
        return {key: without_null(item) for key, item in value.items() if item is not None}
    return [without_null(item) for item in value] if isinstance(value, list) else value


def _misshapen(path: str, value: Any, shape: _Shape) -> str | None:
    if isinstance(shape, _Value):
        return None if shape.fits(value) else f"{path} to be {shape.said}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{path} to be a list"
        return _first(_misshapen(f"{path}[{place}]", item, shape[0]) for place, item in enumerate(value))
    if not isinstance(value, dict):
        return f"{path} to be a mapping"
    if isinstance(shape, _Map):
        wrong = next((key for key in value if not shape.fits(key)), None)
        if wrong is not None:
            return f"{path} to have names of labels, which {wrong!r} is not"
        return _first(_misshapen(f"{path}.{key}", item, shape.value) for key, item in value.items())
    lacking = next((key for key in shape if key.endswith("!") and key[:-1] not in value), None)
    if lacking is not None:
        return f"{path} to have {lacking[:-1]}"
    fields = ((key.removesuffix("!"), below) for key, below in shape.items())
    return _first(_misshapen(f"{path}.{key}", value[key], below) for key, below in fields if key in value)


def _first(found: Any) -> str | None:
    return next((problem for problem in found if problem is not None), None)
