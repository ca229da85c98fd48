# esad serve (the default) and esad review in a container. See docs/serve.md.
#   docker build -t esad .       (smaller with --build-arg PIP_EXTRA_INDEX_URL=..., the index of torch's builds for CPUs)
#   docker run -p 8000:8000 -v "$PWD/models:/models:ro" esad serve /models/payments.esad --host 0.0.0.0
#   docker run -p 8000:8000 -v "$PWD:/work" --user "$(id -u)" esad review /work/payments.csv --host 0.0.0.0 --port 8000

FROM python:3.12-slim AS build
ARG PIP_EXTRA_INDEX_URL
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/esad
# hadolint ignore=DL3059
RUN /opt/esad/bin/python -m pip install --no-cache-dir -c constraints.txt '.[web,image,sign]'

FROM python:3.12-slim
RUN useradd --uid 10001 --create-home esad
COPY --from=build /opt/esad /opt/esad
ENV PATH=/opt/esad/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /work
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import http.client as h, sys; c = h.HTTPConnection('127.0.0.1', 8000, timeout=4); c.request('GET', '/health'); sys.exit(c.getresponse().status >= 500)"]
ENTRYPOINT ["esad"]
CMD ["serve", "/models/model.esad", "--host", "0.0.0.0", "--port", "8000"]
