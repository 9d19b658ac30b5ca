"""`python -m shadowrun_operator`: the operator, with its liveness endpoint. Watches WATCH_NAMESPACES, or everything."""

import logging
import os
from typing import Any

import kopf

from shadowrun_operator import handlers


def main() -> None:
    """Run until told to stop."""
    logging.basicConfig(
        level=os.environ.get("LOG_LEVEL", "INFO"), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    namespaces = handlers.watched_namespaces()
    # kopf would ask the system for the user's name, and a container's user has none.
    identity: Any = os.environ.get("POD_NAME", "shadowrun-operator")
    kopf.run(
        identity=identity,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        liveness_endpoint=os.environ.get("LIVENESS", "http://0.0.0.0:8080/healthz"),
    )


if __name__ == "__main__":
    main()
