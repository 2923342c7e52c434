# The program with its environment, compiler and tests: docs/docker.md. The base decides where it runs:
#   CPUs (default)  debian:12-slim
#   NVIDIA GPUs     nvidia/cuda:13.0.1-base-ubuntu24.04, or another of nvidia/cuda on Debian 12 or Ubuntu 22.04 and newer
ARG BASE=debian:12-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171
# hadolint ignore=DL3006
FROM ${BASE}

# torch.compile and the core need the compiler; ssh reaches the other hosts of a job.
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        ca-certificates g++ make openssh-client python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

# A number, by which Kubernetes and others see that it is not root.
RUN useradd --uid 10001 --create-home --shell /bin/bash alphazero \
    && install --directory --owner=10001 --group=10001 /alphazero
USER 10001
WORKDIR /alphazero

# For this build alone; neither may hold a password, because an image remembers them.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1

# torch and the rest: gigabytes that are kept until one of these three files changes.
COPY --chown=10001:10001 Makefile requirements.lock constraints.txt ./
RUN make .venv/dependencies.stamp

# The core and the package.
COPY --chown=10001:10001 . .
RUN make setup && mkdir runs cache stores

ENV PATH=/alphazero/.venv/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["make", "train"]
