"""The operator's own client on the cluster of the tests, whatever kubeconfig the environment names. Asserts nothing."""

from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration


async def connected(kubeconfig: Path, *, user: str = "") -> ApiClient:
    """A connection without a proxy; as `user`, where one is named. Whoever asks for it closes it."""
    configuration = Configuration()
    await config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=str(kubeconfig), client_configuration=configuration
    )
    configuration.proxy = None
    if user:
        return ApiClient(configuration=configuration, header_name="Impersonate-User", header_value=user)
    return ApiClient(configuration=configuration)
