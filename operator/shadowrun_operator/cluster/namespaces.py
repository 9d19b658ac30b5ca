"""Which namespaces this operator looks after. Pure: it asks nobody whether they exist."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Namespaces:
    """Those in `named`, or all where that is empty; but none in `excluded`."""

    named: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __contains__(self, namespace: object) -> bool:
        if not isinstance(namespace, str) or (self.named and namespace not in self.named):
            return False
        return namespace not in self.excluded

    @property
    def listed(self) -> tuple[str, ...]:
        """Where objects are listed, and then looked at one by one; "" is the whole cluster."""
        return self.named or ("",)

    @property
    def field_selector(self) -> str:
        """What keeps objects of the excluded ones out of a list or a watch of the whole cluster; "" where none are."""
        return ",".join(f"metadata.namespace!={name}" for name in self.excluded)


ALL = Namespaces()
