# syntax=docker/dockerfile:1
# One image for watcher, worker and Flower. The base is an argument, so that a mirror or a hardened base can be used.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv /opt/remesh
COPY requirements.lock ./
RUN /opt/remesh/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY remesh remesh
COPY watcher watcher
COPY workers workers
COPY config config
RUN /opt/remesh/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="remesh" \
      org.opencontainers.image.description="Repairs Kubernetes workloads that a sidecar injector's outage left broken" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/remesh /opt/remesh
ENV PATH=/opt/remesh/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
USER 65532:65532
CMD ["python", "-m", "watcher"]
