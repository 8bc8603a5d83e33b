# Image of a Ray node that runs Specstorm: head, worker, and submitter of a job.
#
#   docker build --tag specstorm:0.1.0-cpu .
#   docker build --tag specstorm:0.1.0-gpu --build-arg DEVICE=gpu .     # PyTorch and Triton too; the host has the driver
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# KubeRay's probes call wget; Triton compiles the launchers of its kernels with gcc.
ARG DEVICE=cpu
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && if [ "$DEVICE" = gpu ]; then apt-get install --yes --no-install-recommends gcc libc6-dev; fi \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 ray && mkdir /specstorm && chown ray /specstorm
WORKDIR /specstorm

# Dependencies first, at the tested versions: they change less often than the code.
COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies'].get('$DEVICE', []), sep='\n')" > /tmp/requirements.txt \
    && pip install --no-cache-dir --constraint constraints.txt --requirement /tmp/requirements.txt

COPY --chown=ray . .
RUN pip install --no-cache-dir --no-deps --editable .

ENV RAY_USAGE_STATS_ENABLED=0 RAY_DEDUP_LOGS=0
# By its number, which Kubernetes can tell from root's.
USER 1000
CMD ["specstorm", "--help"]
