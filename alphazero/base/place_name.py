"""How a user names the place where actors and a learner meet: a directory, or a URL without secrets."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from alphazero.base.errors import ConfigError
from alphazero.base.text import quoted

SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")  # of pyarrow.fs
_SECRET = re.compile(r"key|secret|token|password|credential|signature|sas", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Whether a place is named by a URL and not by the path of a directory."""
    return "://" in text


def read_place(source: str, text: str) -> str:
    """The name of a place as a flag or a file gives it; `source` begins the messages.

    Raises ConfigError for what names none, and for secrets, which would be shown to all who see the command
    line or the log; the message does not repeat them.
    """
    if not text or not text.isprintable():
        raise ConfigError(f"{source} {quoted(text)}: expected a directory or a URL")
    if not is_url(text):
        return text
    scheme = text.partition("://")[0]
    if scheme not in SCHEMES:
        raise ConfigError(
            f"{source} {quoted(scheme)}://...: expected a directory, or {'://, '.join(SCHEMES)}://"
        )
    try:
        url = urlsplit(text)
    except ValueError:
        raise ConfigError(f"{source} {scheme}://...: is no URL; expected {scheme}://NAME/PATH") from None
    user, at, _ = url.netloc.rpartition("@")
    secrets = [name for name, _ in parse_qsl(url.query, keep_blank_values=True) if _SECRET.search(name)]
    if at and (":" in user or scheme == "s3"):
        secrets.append("user:password@")
    if secrets:
        raise ConfigError(
            f"{source} {scheme}://...: has {', '.join(secrets)}, which others can read here; expected a URL "
            "without secrets, and credentials in the environment or a file (docs/actors.md)"
        )
    return text
