"""Reads the user's TOML file about a model on a server: its URL and name, never the key."""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tiltmeter.errors import AttachError, warn_user
from tiltmeter.models.chat.endpoint import LONGEST_TRY_SECONDS, Endpoint, is_loopback
from tiltmeter.safety.secret_scan import describe_secret, is_telling, name_secret


def read_description(
    path: str | Path, what: str, example: str, allowed: set[str], required: Sequence[str]
) -> dict[str, Any]:
    """The facts in a TOML file about a model on a server, with no key among them."""
    if importlib.util.find_spec("httpx") is None:
        raise AttachError(f"a {what} needs httpx: pip install 'tiltmeter[judge]'")
    try:
        facts = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise AttachError(f"the {what} {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AttachError(f"the {what} {path} is not TOML: {error}. It should look like this:\n{example}") from error
    if "key" in facts:
        raise AttachError(f'{path}: take the key out; put it into an environment variable and name it: key_env = "..."')
    _check_no_secret(path, facts)
    if unknown := sorted(set(facts) - allowed):
        raise AttachError(f"{path}: {unknown} mean nothing here; a {what} has {sorted(allowed)}")
    for name in required:
        if not isinstance(facts.get(name), str) or not facts[name].strip():
            raise AttachError(f"{path}: {name} is missing. A {what} looks like this:\n{example}")
    return facts


def _check_no_secret(path: str | Path, facts: dict[str, Any]) -> None:
    """Raises `AttachError` for a key in the file, under whatever name, and does not show it. Of an address that holds a
    password `check_endpoint` says more."""
    for name, value in facts.items():
        texts = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]
        meant = "api_key" if name == "key_env" else name  # where people paste the key itself
        if is_telling(name) or (name != "url" and any(describe_secret(meant, text) for text in texts)):
            raise AttachError(
                f"{path}: {name} looks like a secret: take it out; put the key into an environment variable and name "
                'it: key_env = "..."'
            )


def check_endpoint(path: str | Path, endpoint: Endpoint) -> None:
    """Raises `AttachError` for a server that cannot be asked as described."""
    parts = urlsplit(endpoint.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AttachError(f'{path}: url is where the API begins, as "http://localhost:8000/v1"')
    if parts.username or parts.password or parts.query:
        raise AttachError(f"{path}: url holds credentials; put the key into an environment variable: see key_env")
    if not isinstance(endpoint.key_env, str) or (endpoint.key_env and not os.environ.get(endpoint.key_env)):
        raise AttachError(f"{path}: the environment variable {endpoint.key_env!r} is not set; export it before the run")
    if endpoint.key_env:
        name_secret(endpoint.key_env)
    if endpoint.key_env and parts.scheme == "http" and not is_loopback(endpoint.url):
        warn_user(f"{path}: the key and every text go to {parts.hostname} unencrypted: use https://")
    numbers = (endpoint.timeout, endpoint.retries)
    if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in numbers):
        raise AttachError(f"{path}: timeout and retries are numbers")
    if not 0.0 < endpoint.timeout <= LONGEST_TRY_SECONDS or endpoint.retries not in range(11):
        raise AttachError(f"{path}: timeout lies above 0 and at most {LONGEST_TRY_SECONDS:g} s, retries from 0 to 10")
