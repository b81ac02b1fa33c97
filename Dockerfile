# One image for both kinds of process. Give it DATABASE_URL and RELAY_SECRET_KEY:
#   docker run … relay                      the web server on port 8000
#   docker run … relay run_huey             the workers
#   docker run … relay migrate              once per release, before the others

FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements.lock .
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --disable-pip-version-check -r requirements.lock

FROM python:3.12-slim
RUN useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin relay
COPY --from=build /venv /venv
COPY manage.py /app/
COPY relay /app/relay
COPY deliveries /app/deliveries
COPY ledger /app/ledger
COPY templates /app/templates
COPY static /app/static
RUN /venv/bin/python -m compileall -q /app
WORKDIR /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 RELAY_HOST=0.0.0.0 RELAY_PORT=8000
USER relay
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-c", \
    "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ['RELAY_PORT']), timeout=4); c.request('GET', '/healthz', headers={'Host': os.environ.get('RELAY_ALLOWED_HOSTS', 'localhost').split(',')[0].strip().lstrip('.').replace('*', '') or 'localhost'}); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["python", "manage.py"]
CMD ["serve"]
