"""The smallest spec there is, and how a test changes it."""

from typing import Any

from shadowrun_operator.api.spec import Spec


def spec(**blocks: Any) -> Spec:
    """The smallest spec with some blocks, by their JSON names, put in or replaced."""
    smallest: dict[str, Any] = {
        "primary": {"service": {"name": "chat", "port": 8000}},
        "capture": {"proxy": {"serviceName": "chat-shadowed"}},
        "arms": {"template": {"deploymentRef": {"name": "chat"}}, "candidate": {}},
        "criteria": [{"name": "errors", "metric": "Failures", "require": "NotWorse", "margin": "1%"}],
    }
    return Spec.model_validate(smallest | blocks)
