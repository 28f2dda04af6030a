# syntax=docker/dockerfile:1
# palpate-server with its viewer, simulating on the CPU through PoCL. For a GPU, add its OpenCL driver to the last stage and pass the device through.
# `./run image` builds it with podman or docker; docs/clusters.md says how it is built without a registry, and from programs that exist already.
ARG PALPATE_BASE=debian:bookworm-slim

FROM ${PALPATE_BASE} AS packages
# The lists of packages, one file a group, so that a change of one group does not rebuild the other stage.
COPY deploy/packages.txt /packages.txt
RUN awk '/^#/ || NF == 0 {next} /^\[/ {file = substr($1, 2, length($1) - 2); next} {print $1 > "/packages." file}' /packages.txt

FROM ${PALPATE_BASE} AS build
COPY --from=packages /packages.build /packages.build
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive xargs -a /packages.build apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cmake --preset release -DPALPATE_BUILD_TESTS=OFF -DPALPATE_BUILD_BENCH=OFF \
    && cmake --build --preset release --target palpate_server palpate_station palpate_cli palpate_web_viewer \
    && install -D --strip --target-directory=/programs/bin \
         build/release/bin/palpate-server build/release/bin/palpate-station build/release/bin/palpate \
    && cp -r clients/web/dist /programs/web

# The programs alone. A build context of this name stands in for it, and for the stage above: --build-context programs=FOLDER.
FROM scratch AS programs
COPY --from=build /programs /

FROM ${PALPATE_BASE}
COPY --from=packages /packages.runtime /packages.runtime
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive xargs -a /packages.runtime apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/* /packages.runtime \
    && groupadd --gid 10001 palpate \
    && useradd --uid 10001 --gid palpate --home-dir /var/cache/palpate --create-home --shell /usr/sbin/nologin palpate \
    && install -d -o palpate -g palpate /var/lib/palpate
COPY --from=programs /bin/ /usr/local/bin/
COPY --from=programs /web /usr/local/share/palpate/web
COPY scenes /usr/local/share/palpate/scenes
COPY LICENSE /usr/local/share/palpate/LICENSE
USER palpate
# Compiled kernels: kept in a volume, the second start is quick. Scenes: kept in one, they outlive the container.
ENV PALPATE_CACHE_DIR=/var/cache/palpate/kernels POCL_CACHE_DIR=/var/cache/palpate/pocl
VOLUME /var/cache/palpate /var/lib/palpate
EXPOSE 50051 8080
# Asks the API itself. With TLS set PALPATE_SERVER and give --tls-ca in an own health check.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD ["palpate", "--timeout", "3", "server-info"]
ENTRYPOINT ["palpate-server"]
# A container's address is never loopback, so the border is where its ports are published: to 127.0.0.1, or give --tls-cert and --tls-key.
# Browsers reach the viewer by localhost, a numeric address or the container's host name; other names need --allowed-host NAME.
CMD ["--listen", "0.0.0.0:50051", "--http", "0.0.0.0:8080", "--insecure", "--web-root", "/usr/local/share/palpate/web", \
     "--state-dir", "/var/lib/palpate", "--scene", "/usr/local/share/palpate/scenes/liver.json"]
