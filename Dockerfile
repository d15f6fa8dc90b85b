# One image for watcher, worker and Flower. Needs BuildKit: the default since Docker 23, before it DOCKER_BUILDKIT=1.
#
#   docker build -t remesh:0.1.0 .
#
# BASE_IMAGE has Python 3.11 or newer with its venv module, and a shell; the build stage alone uses the shell.
# RUNTIME_IMAGE has the same Python at the same place and may lack all else: shell, package manager, pip.
# For a package index of your own: --secret id=pip,src=$HOME/.config/pip/pip.conf, which no layer keeps.
ARG BASE_IMAGE=python:3.11-slim
ARG RUNTIME_IMAGE=${BASE_IMAGE}

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/remesh
COPY requirements.lock requirements-build.lock ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/build/bin/pip install --require-hashes -r requirements-build.lock && \
    /opt/build/bin/pip --python /opt/remesh/bin/python install --no-compile --require-hashes -r requirements.lock
# Of the Kubernetes client, which is most of the bytes, election and credentials alone are used: not its asynchronous
# twin, and not its models, which therefore need no bytecode. All else has it, as a read-only root can never add it.
RUN rm -r /opt/remesh/lib/python3*/site-packages/kubernetes/aio && \
    /opt/remesh/bin/python -m compileall -q -x '/kubernetes/client/(models|api)/' /opt/remesh/lib
COPY pyproject.toml README.md LICENSE ./
COPY remesh remesh
COPY watcher watcher
COPY workers workers
COPY config config
RUN /opt/build/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheel . && \
    /opt/build/bin/pip --python /opt/remesh/bin/python install --no-deps --no-index /wheel/*.whl

FROM ${RUNTIME_IMAGE}
# As remesh/__init__.py has it; a test holds the two together.
ARG VERSION=0.1.0
ARG REVISION=
ARG SOURCE=https://remesh.dev
LABEL org.opencontainers.image.title="remesh" \
      org.opencontainers.image.description="Repairs Kubernetes workloads that a sidecar injector's outage left broken" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/remesh /opt/remesh
ENV PATH=/opt/remesh/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
# Where the root file system is read-only this is the one place that a process writes to: mount a tmpfs there.
WORKDIR /tmp
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
CMD ["python", "-m", "watcher"]
