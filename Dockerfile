# docker build -t tawpipe . && docker run --rm tawpipe compare --cluster dgx-h100 --model llama-3-8b --sequence 4096 --global-batch 64
# The command, without CUDA. With files of yours: docker run --rm -v "$PWD:/work" tawpipe plan ... --report plan.html
FROM debian:12-slim AS build
COPY . /tawpipe
WORKDIR /tawpipe
RUN bash -c 'source tools/packages.sh && tawpipe_install "${tawpipe_build_packages[@]}" python3 dpkg-dev file'
RUN cmake --preset release -DTAWPIPE_BUILD_TESTS=OFF -DTAWPIPE_BUILD_EXAMPLES=OFF -DTAWPIPE_BUILD_BENCHMARKS=OFF \
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=24 && cmake --build --preset release && cd build && cpack -G DEB

FROM debian:12-slim
COPY --from=build /tawpipe/build/tawpipe_*.deb /tawpipe/build/tawpipe-mpi_*.deb /tawpipe/build/tawpipe-chakra_*.deb /tmp/
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends /tmp/*.deb && rm -rf /tmp/*.deb /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["tawpipe"]
