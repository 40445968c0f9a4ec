# One image for the API and for the workers: the first argument selects the program.
# BuildKit builds it: docker buildx bake, or docker compose build.
# The secrets pip.conf and ca.pem, both optional, name a package index and its authority (docs/how-to/deploy.md).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b

FROM ${PYTHON_IMAGE} AS tools
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

FROM tools AS libraries
ENV PATH=/opt/glle/bin:$PATH
RUN python3 -m venv /opt/glle
WORKDIR /src
COPY requirements/server.lock requirements/
COPY deploy/image/slim.py deploy/image/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.pem \
    pip install --no-compile --require-hashes --only-binary :all: --requirement requirements/server.lock \
    && python deploy/image/slim.py /opt/glle

# Code of the engine for this kind of processor. A change of other packages keeps this layer.
FROM libraries AS compiled
COPY glle_engine glle_engine
RUN NUMBA_CACHE_DIR=/compiled PYTHONDONTWRITEBYTECODE=1 python -m glle_engine.posterior.fingerprint

# The wheels of both distributions. A release publishes the same ones: docker buildx bake wheels
FROM tools AS build-wheels
RUN python3 -m venv /opt/build
WORKDIR /src
COPY requirements/build.lock requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.pem \
    /opt/build/bin/pip install --require-hashes --only-binary :all: --requirement requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY deploy/server deploy/server
COPY openapi openapi
COPY glle_engine glle_engine
COPY worker worker
COPY service service
COPY glle glle
COPY --from=compiled /compiled glle_engine/compiled
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . ./deploy/server

FROM scratch AS wheels
COPY --from=build-wheels /dist /

FROM libraries AS build
COPY --from=wheels / /dist
RUN pip install --no-compile --no-deps --no-index /dist/*.whl && pip check && pip uninstall --yes setuptools pip
# Bytecode of the modules that the programs and the most used libraries import.
RUN python -c 'import service.app, service.uploads.sandbox.forkserver, worker.execution.parent' \
    && python -c 'import sklearn.manifold, sklearn.decomposition, pyarrow.parquet, pyarrow.feather, umap'

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="glle" \
      org.opencontainers.image.description="Generative locally linear embedding as a service: API and workers." \
      org.opencontainers.image.licenses="MIT"
# A new named volume takes the owner of the folder that it covers, so /data belongs to the user of the processes.
RUN groupadd --gid 10001 glle \
    && useradd --uid 10001 --gid glle --no-create-home --home-dir /data --shell /usr/sbin/nologin glle \
    && install --directory --owner=glle --group=glle --mode=0750 /data
COPY --from=build /opt/glle /opt/glle
# A processor without AVX2 compiles into NUMBA_CACHE_DIR.
ENV PATH=/opt/glle/bin:$PATH PYTHONUNBUFFERED=1 GLLE_DATA_DIR=/data NUMBA_CACHE_DIR=/tmp/glle-compiled
USER 10001:10001
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["glle"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
