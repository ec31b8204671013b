# An image with torch, pccl and the start scripts, for a user that is not root. From the root of the repository:
#   docker build -f examples/launch/peer.Dockerfile -t pccl-base .
# An image of yours adds the program: FROM pccl-base, then COPY train.py .
FROM debian:12-slim AS build
WORKDIR /pccl
COPY tools/debian-packages.sh tools/debian-packages.txt tools/requirements.txt tools/
RUN tools/debian-packages.sh setup
ARG TORCH=2.15.0
RUN python3 -m venv /opt/pccl && \
    /opt/pccl/bin/pip install --no-cache-dir torch==$TORCH $(grep -oE '^(setuptools|numpy)==[0-9.]+' tools/requirements.txt)
COPY CMakeLists.txt pyproject.toml setup.py README.md LICENSE ./
COPY cmake cmake
COPY csrc csrc
COPY cuda cuda
COPY master master
COPY pccl_backend pccl_backend
RUN /opt/pccl/bin/pip install --no-cache-dir --no-build-isolation --no-deps .

FROM debian:12-slim
RUN apt-get update && \
    apt-get install -y --no-install-recommends python3 libuv1 libssl3 libgomp1 && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 1000 --create-home pccl
COPY --from=build /opt/pccl /opt/pccl
COPY examples/launch /opt/launch
ENV PATH=/opt/launch:/opt/pccl/bin:$PATH
USER 1000:1000
WORKDIR /train
CMD ["peer.sh"]
