# syntax=docker/dockerfile:1
# palpate-server with its viewer, simulating on the CPU through PoCL. For a GPU, add its OpenCL driver to the last stage and pass the device through.

FROM debian:bookworm-slim AS packages
# The lists of packages, one file a group, so that a change of one group does not rebuild the other stage.
COPY deploy/packages.txt /packages.txt
RUN awk '/^#/ || NF == 0 {next} /^\[/ {file = substr($1, 2, length($1) - 2); next} {print $1 > "/packages." file}' /packages.txt

FROM debian:bookworm-slim AS build
COPY --from=packages /packages.build /packages.build
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive xargs -a /packages.build apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cmake --preset release -DPALPATE_BUILD_TESTS=OFF -DPALPATE_BUILD_BENCH=OFF \
    && cmake --build --preset release --target palpate_server palpate_station palpate_cli palpate_web_viewer \
    && strip build/release/bin/palpate-server build/release/bin/palpate-station build/release/bin/palpate

FROM debian:bookworm-slim
COPY --from=packages /packages.runtime /packages.runtime
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive xargs -a /packages.runtime apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/* /packages.runtime \
    && useradd --system --uid 10001 --user-group --home-dir /var/cache/palpate --create-home palpate
COPY --from=build /src/build/release/bin/palpate-server /src/build/release/bin/palpate-station /src/build/release/bin/palpate /usr/local/bin/
COPY --from=build /src/clients/web/dist /usr/local/share/palpate/web
COPY scenes /usr/local/share/palpate/scenes
COPY LICENSE /usr/local/share/palpate/LICENSE
USER palpate
# Compiled kernels; keep it in a volume and the second start is quick.
ENV PALPATE_CACHE_DIR=/var/cache/palpate/kernels POCL_CACHE_DIR=/var/cache/palpate/pocl
VOLUME /var/cache/palpate
EXPOSE 50051 8080
# Asks the API itself. With TLS set PALPATE_SERVER and give --tls-ca in an own health check.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD ["palpate", "--timeout", "3", "server-info"]
ENTRYPOINT ["palpate-server"]
# A container's address is never loopback, so the border is where its ports are published: to 127.0.0.1, or give --tls-cert and --tls-key.
# Browsers reach the viewer by localhost, a numeric address or the container's host name; other names need --allowed-host NAME.
CMD ["--listen", "0.0.0.0:50051", "--http", "0.0.0.0:8080", "--insecure", "--web-root", "/usr/local/share/palpate/web", \
     "--scene", "/usr/local/share/palpate/scenes/liver.json"]
