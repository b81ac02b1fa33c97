"""Django's settings. Everything that differs between deployments comes from the environment through `relay.env`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import django_stubs_ext

from relay import broker, database, env, roles, secret_key, unfold

BASE_DIR = Path(__file__).resolve().parent.parent
_FILES_DIR = BASE_DIR if (BASE_DIR / "manage.py").exists() else BASE_DIR / "relay"
"""Where `templates` and `static` are: beside the packages in a checkout, inside of `relay` when it is installed."""
CONFIG = env.current()

# So that `ModelAdmin[Run]` and its like, which the type checker asks for, may also be run.
django_stubs_ext.monkeypatch()

RELAY_DATA_DIR = CONFIG.data_dir
RELAY_EMBEDDED = CONFIG.embedded
RELAY_EGRESS_ALLOW = CONFIG.egress_allow
RELAY_EGRESS_DENY = CONFIG.egress_deny
RELAY_EGRESS_HOSTS = CONFIG.egress_hosts
RELAY_EGRESS_HTTP = CONFIG.egress_http
RELAY_EGRESS_NAT64 = CONFIG.egress_nat64
RELAY_EGRESS_PORTS = CONFIG.egress_ports
RELAY_OWN_LISTENERS = CONFIG.own_listeners
RELAY_LEASE_TTL_MS = CONFIG.lease_ttl_ms
RELAY_HEARTBEAT_MS = CONFIG.heartbeat_ms
RELAY_HTTP_TIMEOUT_MS = CONFIG.http_timeout_ms
RELAY_SWEEP_MS = CONFIG.sweep_ms
RELAY_POISON_LOSSES = CONFIG.poison_losses
RELAY_BREAKER_FAILURES = CONFIG.breaker_failures
RELAY_DISABLE_AFTER_HOURS = CONFIG.disable_after_hours
RELAY_DISABLE_SPAN_HOURS = CONFIG.disable_span_hours
RELAY_DISABLE_DELIVERIES = CONFIG.disable_deliveries
RELAY_TRANSPORT = CONFIG.transport
RELAY_DISPATCHERS = CONFIG.dispatchers
RELAY_FAILPOINT = CONFIG.failpoint
RELAY_MAX_PAYLOAD_BYTES = CONFIG.max_payload_bytes
RELAY_MAX_BATCH_BYTES = CONFIG.max_batch_bytes
RELAY_UNKNOWN_TYPES = CONFIG.unknown_types
RELAY_UNKNOWN_TOLD_AFTER_S = CONFIG.unknown_told_after_s
RELAY_HOST = CONFIG.host
RELAY_PORT = CONFIG.port
RELAY_WEB_PROCESSES = CONFIG.web_processes
RELAY_WEB_THREADS = CONFIG.web_threads

# --- secrets -----------------------------------------------------------------------------------------------------

try:
    SECRET_KEY = CONFIG.secret_key or secret_key.kept(CONFIG.data_dir)
except OSError as refused:
    env.stop(f"RELAY_DATA_DIR cannot hold the secret key ({refused.strerror}): {CONFIG.data_dir}.")
SECRET_KEY_FALLBACKS = list(CONFIG.secret_key_fallbacks)

# --- the application ---------------------------------------------------------------------------------------------

DEBUG = CONFIG.debug
ROOT_URLCONF = "relay.urls"
WSGI_APPLICATION = "relay.wsgi.application"
INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "ninja",
    "relay",
    "deliveries",
    "ledger",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_FILES_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
UNFOLD = unfold.UNFOLD
LOGIN_REDIRECT_URL = "admin:index"

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- the database and the doorbell -------------------------------------------------------------------------------

DATABASES: dict[str, dict[str, Any]] = {"default": database.settings_for(CONFIG.database)}
RELAY_MIGRATION_LOGIN = (
    database.settings_for(CONFIG.migration_database, assume_role=roles.OWNER) if CONFIG.migration_database else None
)
"""Entries of DATABASES["default"] that differ while migrations run; None: they run as everything else does."""

try:
    HUEY = broker.make(CONFIG.huey_url)
except env.BadVariable as bad:
    env.stop(str(bad))

# --- HTTP --------------------------------------------------------------------------------------------------------

ALLOWED_HOSTS = list(CONFIG.allowed_hosts)
APPEND_SLASH = False

ENVELOPE_HEADROOM = 65_536
"""Bytes of a request besides the payload: type, source, metadata, punctuation."""
DATA_UPLOAD_MAX_MEMORY_SIZE = RELAY_MAX_PAYLOAD_BYTES + ENVELOPE_HEADROOM
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000  # Admin actions on long lists post one field per row.

_HTTPS = CONFIG.public_url.startswith("https://")
CSRF_TRUSTED_ORIGINS = [CONFIG.public_url] if CONFIG.public_url else []
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE = _HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Only a proxy that ends TLS for a stated https address is believed about the scheme.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _HTTPS else None

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

# WhiteNoise serves what the finders find, so that nothing has to be collected before a start.
STATIC_URL = "static/"
STATICFILES_DIRS = [_FILES_DIR / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

# --- logging: to stderr; never a body, a header or a secret ------------------------------------------------------

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "{asctime} {levelname:<7} {name} [{process}] {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": CONFIG.log_level},
    "loggers": {
        # Huey adds a handler of its own when its logger has none, and every line would come twice. At INFO it tells
        # of every task.
        "huey": {
            "handlers": ["stderr"],
            "level": "WARNING" if CONFIG.log_level == "INFO" else CONFIG.log_level,
            "propagate": False,
        },
        # Django hangs a handler on its logger before ours; ours is the only one that should speak.
        "django": {"handlers": ["stderr"], "level": CONFIG.log_level, "propagate": False},
    },
}
