"""A real engine: llama.cpp behind its own OpenAI-compatible server, configured by the environment.

It must not touch requests or answers: what a client sees is what llama.cpp does.

    python -m examples.engine.llama

* MODEL         path of a GGUF file (default /models/tiny.gguf)
* MODEL_NAME    the name it answers to (default chat)
* PREFIX_CACHE  on | off: reuse what is already computed of a prompt (default on)
* PARALLEL      requests computed at once (default 2)
* THREADS       threads it may use (default 1)
* CONTEXT       tokens per request (default 4096)
* PORT          (default 8000); ready when GET /health answers 200
"""

import os
import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType

import xllamacpp


def parameters(environment: Mapping[str, str]) -> xllamacpp.CommonParams:
    """llama.cpp's parameters from environment variables; ValueError names a value that is not understood."""
    cache = environment.get("PREFIX_CACHE", "on")
    if cache not in {"on", "off"}:
        raise ValueError(f"PREFIX_CACHE must be on or off, not {cache!r}")
    parallel = int(environment.get("PARALLEL", "2"))
    threads = int(environment.get("THREADS", "1"))
    params = xllamacpp.CommonParams()
    params.model.path = environment.get("MODEL", "/models/tiny.gguf")
    params.model_alias = {environment.get("MODEL_NAME", "chat")}
    params.hostnames = ["0.0.0.0"]  # noqa: S104  (a server in a pod)
    params.port = int(environment.get("PORT", "8000"))
    params.n_parallel = parallel
    params.n_ctx = int(environment.get("CONTEXT", "4096")) * parallel
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_threads_http = 8
    params.cache_prompt = cache == "on"
    params.cache_ram_mib = 256 if cache == "on" else 0
    params.endpoint_metrics = True
    params.warmup = False
    params.verbosity = 1
    return params


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    stopped = threading.Event()

    def stop(signum: int, frame: FrameType | None) -> None:
        stopped.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server = xllamacpp.Server(parameters(os.environ))
    print(f"serving on {server.listening_address}", flush=True)
    stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
