# An image with pccl-master and the libraries that it needs, and nothing else. From the root of the repository:
#   docker build -f examples/launch/master.Dockerfile -t pccl-master .
FROM debian:12-slim AS build
WORKDIR /pccl
COPY tools/debian-packages.sh tools/debian-packages.txt tools/
RUN tools/debian-packages.sh setup
COPY CMakeLists.txt pyproject.toml ./
COPY cmake cmake
COPY csrc csrc
COPY cuda cuda
COPY master master
RUN cmake -S . -B build -G Ninja -DPCCL_TESTS=OFF -DPCCL_OPENMP=OFF -DPCCL_UNITY=ON && \
    cmake --build build --target pccl-master && \
    strip build/pccl-master
# The libraries keep their paths, where the loader looks for them.
RUN install -D build/pccl-master /image/usr/local/bin/pccl-master && \
    cp -L --parents $(ldd build/pccl-master | grep -o '/[^ ]*') /image && \
    install -d -o 65532 -g 65532 -m 700 /image/var/lib/pccl

FROM scratch
COPY --from=build /image /
USER 65532:65532
EXPOSE 48148
VOLUME /var/lib/pccl
ENTRYPOINT ["/usr/local/bin/pccl-master"]
CMD ["--host", "0.0.0.0", "--journal", "/var/lib/pccl/master.journal", "--keyring", "/run/pccl/keyring"]
