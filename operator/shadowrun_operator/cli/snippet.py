"""`shadowrun snippet`: the mirror filter of a run as YAML, to be put into a rule of an HTTPRoute by hand. Pure."""

import yaml

from shadowrun_operator.api.spec import Spec
from shadowrun_operator.cli.exits import CommandError
from shadowrun_operator.manifests.route import copied_share, mirror_filter


def snippet_text(spec: Spec) -> str:
    """An entry of a rule's `filters`. Raises `CommandError` for a run whose copies are made by an Envoy of its own."""
    if not spec.capture.made_elsewhere:
        raise CommandError("capture.mode is Proxy: its copies need no filter; modes External and HTTPRoute do")
    wanted = mirror_filter(spec.capture.service_name, copied_share(spec))
    return yaml.safe_dump({"filters": [wanted]}, sort_keys=False).rstrip()
