"""What the resource can say and this version does not do: each such field is named, nothing is silently ignored.

Pure. A field leaves this table in the same change that implements it. What contradicts itself is refused by the API
server before; what is missing in the cluster is found by the operator.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shadowrun_operator.api.spec import Spec


@dataclass(frozen=True)
class NotYet:
    """A field, the part of a sentence that says what is asked of it, when it is, and what to do instead."""

    field: str
    asks: str
    asked: Callable[[Spec], bool]
    instead: str

    @property
    def sentence(self) -> str:
        """The whole for people."""
        return f"{' '.join(part for part in (self.field, self.asks) if part)} is not implemented yet: {self.instead}."


READABLE = ("/chat/completions", "/completions", "/responses", "/embeddings", "/messages")
"""How the paths end whose requests and answers the mirror can read."""

NOT_YET: tuple[NotYet, ...] = (
    NotYet(
        "spec.capture.proxy.port",
        "other than the primary's",
        lambda s: s.capture.proxy is not None and s.capture.proxy.port not in (None, s.primary.service.port),
        "leave it out",
    ),
    NotYet(
        "spec.capture.paths",
        "of other protocols",
        lambda s: not all(path.endswith(READABLE) for path in s.capture.paths),
        f"list paths that end in {', '.join(READABLE[:-1])} or {READABLE[-1]}, whose answers can be read",
    ),
    NotYet(
        "spec.comparison.output",
        "Distribution",
        lambda s: s.comparison is not None and s.comparison.output == "Distribution",
        "use Parity, with a control to see how often equal arms match",
    ),
    NotYet(
        "spec.comparison.checks",
        "",
        lambda s: s.comparison is not None and bool(s.comparison.checks),
        "leave it out; answers are compared with each other and not checked by themselves",
    ),
)


def not_implemented(spec: Spec) -> list[str]:
    """A sentence for every field that asks for what is not done yet, in the order of the spec; empty when none does."""
    return [entry.sentence for entry in NOT_YET if entry.asked(spec)]
