# esad serve (the default) and esad review in a container. See docs/serve.md.
#   docker build -t esad .
#   docker run -p 8000:8000 -v "$PWD/models:/models:ro" esad serve /models/payments.esad --host 0.0.0.0
#   docker run -p 8000:8000 -v "$PWD:/work" --user "$(id -u)" esad review /work/payments.csv --host 0.0.0.0 --port 8000
#
# By default pip takes torch's build for GPUs, which makes the image gigabytes larger. For a build for CPUs give its wheel,
# or the index that has such builds:
#   docker build -t esad --build-arg TORCH=URL-OF-A-WHEEL .
#   docker build -t esad --build-arg PIP_EXTRA_INDEX_URL=URL-OF-AN-INDEX .
# The health check asks port 8000. A service on another port says so: docker run -e ESAD_PORT=9000 ... --port 9000

FROM python:3.12-slim AS build
ARG PIP_EXTRA_INDEX_URL=
ARG TORCH=
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/esad
# hadolint ignore=DL3059
RUN /opt/esad/bin/python -m pip install --no-cache-dir -c constraints.txt ${TORCH:+"$TORCH"} '.[web,image,sign]'

FROM python:3.12-slim
RUN useradd --uid 10001 --create-home esad
COPY --from=build /opt/esad /opt/esad
ENV PATH=/opt/esad/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 ESAD_PORT=8000
USER 10001
WORKDIR /work
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.environ['ESAD_PORT']), timeout=4); c.request('GET', '/health'); sys.exit(c.getresponse().status >= 500)"]
ENTRYPOINT ["esad"]
CMD ["serve", "/models/model.esad", "--host", "0.0.0.0", "--port", "8000"]
