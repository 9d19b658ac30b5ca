"""How the images of our own pods are pulled: laid over a finished Deployment, the same for every one. Pure.

Arms are left alone: they pull what the primary pulls, in the primary's way.
"""

from collections.abc import Iterable

from shadowrun_operator.manifests.names import Manifest


def pulled(deployment: Manifest, *, policy: str, secrets: Iterable[str]) -> Manifest:
    """The Deployment with this pull policy in every container, and these Secrets (of its namespace) to pull with."""
    template = deployment["spec"]["template"]
    pods = {
        key: [{**container, "imagePullPolicy": policy} for container in value] if key in _CONTAINERS else value
        for key, value in template["spec"].items()
    }
    names = [{"name": secret} for secret in secrets]
    if names:
        pods["imagePullSecrets"] = names
    return {**deployment, "spec": {**deployment["spec"], "template": {**template, "spec": pods}}}


_CONTAINERS = ("initContainers", "containers")
