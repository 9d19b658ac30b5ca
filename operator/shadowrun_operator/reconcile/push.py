"""Which mirrors have yet to be told of a configuration. Pure."""

from shadowrun_mirror.config import MirrorConfig

from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Push


def push_of(seen: Observation, config: MirrorConfig) -> Push | None:
    """The mirrors that are not known to have this configuration; None where all have it."""
    newest = seen.books.newest_mirrors()
    behind = tuple(
        pod.address
        for pod in seen.pods_of(names.MIRROR)
        if pod.address and (pod.uid not in newest or newest[pod.uid].config_version < config.version)
    )
    return Push(config, behind) if behind else None
