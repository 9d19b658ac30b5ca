"""Which namespaces this operator looks after. Pure: it asks nobody whether they exist."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Namespaces:
    """Those in `named`, or all where that is empty; but none whose name matches a pattern in `excluded` (`*`, `?`)."""

    named: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __contains__(self, namespace: object) -> bool:
        if not isinstance(namespace, str) or (self.named and namespace not in self.named):
            return False
        return not any(fnmatchcase(namespace, pattern) for pattern in self.excluded)

    @property
    def listed(self) -> tuple[str, ...]:
        """Where objects are listed, and then looked at one by one; "" is the whole cluster."""
        return self.named or ("",)


ALL = Namespaces()
