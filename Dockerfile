# The images of the operator, the mirror and the capture: one file, three targets.
# Third-party code is installed by hash from locks/; our own is copied. No compiler, no package manager in the result.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/app

FROM build AS build-operator
COPY locks/operator.txt /tmp/lock.txt
RUN /opt/app/bin/pip install --require-hashes --only-binary=:all: -r /tmp/lock.txt && /opt/app/bin/pip uninstall --yes pip

FROM build AS build-mirror
COPY locks/mirror.txt /tmp/lock.txt
RUN /opt/app/bin/pip install --require-hashes --only-binary=:all: -r /tmp/lock.txt && /opt/app/bin/pip uninstall --yes pip

FROM build AS build-capture
COPY locks/capture.txt /tmp/lock.txt
RUN /opt/app/bin/pip install --require-hashes --only-binary=:all: -r /tmp/lock.txt && /opt/app/bin/pip uninstall --yes pip
# The binary itself, not the Python script that starts it: a signal reaches Envoy and nothing else runs beside it.
RUN ln -sf ../lib/python3.13/site-packages/envoy/_bin/envoy /opt/app/bin/envoy && /opt/app/bin/envoy --version

FROM python:3.13-slim AS base
# USER: kopf asks for a name, and an unprivileged number has none in the image.
ENV PATH=/opt/app/bin:/usr/local/bin:/usr/bin:/bin PYTHONPATH=/opt/shadowrun \
    HOME=/tmp USER=shadowrun PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /

FROM base AS operator
COPY --from=build-operator /opt/app /opt/app
COPY mirror/shadowrun_mirror /opt/shadowrun/shadowrun_mirror
COPY operator/shadowrun_operator /opt/shadowrun/shadowrun_operator
COPY pyproject.toml /opt/shadowrun/pyproject.toml
# What an installed distribution would say of itself: the operator reads its own version from there.
RUN python3 -c "import pathlib, tomllib; root = pathlib.Path('/opt/shadowrun'); \
version = tomllib.loads((root / 'pyproject.toml').read_text())['project']['version']; \
info = root / f'shadowrun-{version}.dist-info'; info.mkdir(); \
(info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: shadowrun\nVersion: {version}\n')" \
    && python3 -m compileall -q /opt/shadowrun
USER 65532:65532
CMD ["python", "-m", "shadowrun_operator"]

FROM base AS mirror
COPY --from=build-mirror /opt/app /opt/app
COPY mirror/shadowrun_mirror /opt/shadowrun/shadowrun_mirror
RUN python3 -m compileall -q /opt/shadowrun
USER 65532:65532
CMD ["python", "-m", "shadowrun_mirror"]

FROM base AS capture
COPY --from=build-capture /opt/app /opt/app
COPY mirror/shadowrun_mirror /opt/shadowrun/shadowrun_mirror
RUN python3 -m compileall -q /opt/shadowrun
USER 65532:65532
CMD ["python", "-m", "shadowrun_mirror.capture"]
