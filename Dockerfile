# makai serve in a container: no root, one folder for its data, a health check. Build it in a checkout:
#
#   docker build -t makai .
#   docker run -d --name makai-server -p 127.0.0.1:8717:8717 -v makai:/data -v "$PWD":/work makai
#   docker exec makai-server makai web        # prints the address of the page, with its token
#
# --build-arg POSTGRES=yes adds what a store in PostgreSQL needs (deploy/compose.yaml).
# --build-arg LOCAL=yes adds the runtime of the local model (106 MB); its weights are downloaded into /data.
# tools/image_size.py adds up what the layers hold.

FROM node:22-slim AS page
WORKDIR /build/web
COPY web/package.json web/package-lock.json ./
RUN npm ci --silent --no-audit --no-fund --ignore-scripts --omit=dev
COPY web ./
RUN npm run build --silent

FROM python:3.13-slim AS install
ARG LOCAL=no
ARG POSTGRES=no
WORKDIR /build
# pip stays that of the base image, which the environment sees.
RUN python -m venv --system-site-packages --without-pip /opt/makai
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY constraints-run.txt ./
RUN /opt/makai/bin/python -m pip install -q --no-compile --require-hashes --only-binary :all: -r constraints-run.txt
# The driver is pinned among the tools; what else it needs is in constraints-run.txt.
COPY constraints.txt ./
RUN if [ "$POSTGRES" = yes ]; then \
        awk '/^[a-z]/ { wanted = /^psycopg(-binary)?==/ } wanted' constraints.txt > postgres.txt \
        && /opt/makai/bin/python -m pip install -q --no-compile --no-deps --require-hashes --only-binary :all: -r postgres.txt; \
    fi
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY packaging/makai.1 packaging/
COPY src src
COPY --from=page /build/src/makai/server/page src/makai/server/page
RUN /opt/makai/bin/python -m pip install -q --no-compile --no-index --no-deps --no-build-isolation . \
    && /opt/makai/bin/python -m pip uninstall -q -y hatchling editables pathspec pluggy trove-classifiers \
    && if [ "$LOCAL" != yes ]; then /opt/makai/bin/python -m pip uninstall -q -y xllamacpp; fi \
    && /opt/makai/bin/python -m compileall -q /opt/makai/lib/python3.13/site-packages/makai \
    && touch /opt/makai/makai-image

FROM python:3.13-slim
# bubblewrap confines commands where the host lets containers make namespaces; elsewhere makai uses Landlock.
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home makai \
    && install -d -m 700 -o makai -g makai /data && install -d -o makai -g makai /work
COPY --from=install /opt/makai /opt/makai
ENV PATH=/opt/makai/bin:$PATH MAKAI_HOME=/data
USER makai
WORKDIR /work
VOLUME /data
EXPOSE 8717
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8717/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
# Docker publishes the port on this machine only (127.0.0.1 above). For others, put a proxy with TLS in front.
ENTRYPOINT ["makai"]
CMD ["serve", "--host", "0.0.0.0", "--allow-plain-remote"]
