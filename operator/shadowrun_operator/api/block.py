"""`Block`: what all models of the resource have in common, and the ways to write a CEL rule beside a field.

Models are frozen and speak camelCase; unknown fields are ignored, so that an older operator reads a newer object. The
docstring below a field is its description in the CRD. This module must not know any field of the resource.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label, the form of most names in Kubernetes."""

SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""A DNS subdomain, the form of names of Deployments, Secrets and nodes."""

QUALIFIED = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
"""A label key, with or without a prefix."""

Label = Annotated[str, StringConstraints(pattern=LABEL, min_length=1, max_length=63)]
ShortName = Annotated[str, StringConstraints(pattern=LABEL, min_length=1, max_length=32)]
ObjectName = Annotated[str, StringConstraints(pattern=SUBDOMAIN, min_length=1, max_length=253)]
LabelKey = Annotated[str, StringConstraints(pattern=QUALIFIED, min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern="^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]

FieldPath = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$", min_length=1, max_length=128)
]
FieldName = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9_][-A-Za-z0-9_]*$", min_length=1, max_length=64)]
Port = Annotated[int, Field(ge=1, le=65535)]

DEFAULT_CLASS = "default"
"""Name of the class of all requests that no entry of `spec.classes` matches."""

MAX_CLASSES = 8
"""Most entries of `spec.classes`."""

Opaque = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "maxProperties": 64}),
]
"""An object whose fields belong to another API; the API server keeps it as it is and CEL cannot see into it."""


class Block(BaseModel):
    """Base of every model of the resource."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    def to_json(self) -> dict[str, Any]:
        """The block as it is written to the API server: camelCase, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def rules(*pairs: tuple[str, str]) -> JsonDict:
    """CEL rules for `json_schema_extra`, each as (rule, message)."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


def map_by(key: str) -> JsonDict:
    """Marks a list of objects as keyed, so that the API server refuses a repeated key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


AS_SET: JsonDict = {"x-kubernetes-list-type": "set"}
"""Marks a list of strings as a set, so that the API server refuses a repeated entry."""
