# The image of a release is built with a base pinned by digest (CONTRIBUTING.md, "Release the image").
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim

FROM ${PYTHON_IMAGE} AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/kvcache-exporter
# What is installed is what the locks say, by hash; wheels only, so that nothing else runs or is fetched.
COPY requirements-build.lock requirements.lock ./
RUN /build/bin/pip install --require-hashes --no-deps --only-binary :all: -r requirements-build.lock \
 && /build/bin/pip --python /opt/kvcache-exporter/bin/python install \
      --require-hashes --no-deps --only-binary :all: --no-compile -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
COPY dashboards dashboards
COPY alerts alerts
RUN /build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /build/bin/pip --python /opt/kvcache-exporter/bin/python install \
      --no-index --no-deps --no-compile /wheels/*.whl \
 && /build/bin/pip --python /opt/kvcache-exporter/bin/python check \
 && rm /opt/kvcache-exporter/bin/[Aa]ctivate*
# Bytecode that is valid whatever the time stamps, as nothing can be written when it runs.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/kvcache-exporter/lib

FROM ${PYTHON_IMAGE}
ARG PYTHON_IMAGE
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kvcache-exporter" \
      org.opencontainers.image.description="Prometheus exporter for the prefix (KV) cache of LLM engines" \
      org.opencontainers.image.source="https://github.com/kvcache-exporter/kvcache-exporter" \
      org.opencontainers.image.documentation="https://github.com/kvcache-exporter/kvcache-exporter/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
COPY --from=builder /opt/kvcache-exporter /opt/kvcache-exporter
ENV PATH=/opt/kvcache-exporter/bin:/usr/local/bin:/usr/bin:/bin
# Runs it once, which leaves bytecode of the standard library (the official image has none), and makes the
# folder of the state file, which a named volume takes its owner from.
RUN kvcache-exporter --version && install -d -o 65532 -g 65532 -m 0700 /var/lib/kvcache-exporter
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 9409
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s --retries=3 CMD ["kvcache-exporter", "healthy"]
ENTRYPOINT ["kvcache-exporter"]
CMD ["serve", "--config.file", "/etc/kvcache-exporter/kvcache.yaml"]
