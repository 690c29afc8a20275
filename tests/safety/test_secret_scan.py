"""Secrets are found by their value and by their form, wherever they stand, in time linear in the text."""

from __future__ import annotations

import base64
import string
import time

import pytest

from tiltmeter.safety.secret_scan import (
    SecretScan,
    environment_secrets,
    find_forms,
    is_telling,
    name_secret,
    replace_secrets,
    scan_environment,
)

RANDOM = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"  # nobody's
FORMS = {
    "API key": [f"sk-{RANDOM}", f"sk-ant-api03-{RANDOM}", f"sk-or-v1-{RANDOM}"],
    "GitHub token": [f"ghp_{RANDOM[:36]}", f"github_pat_{RANDOM}"],
    "GitLab token": [f"glpat-{RANDOM[:20]}"],
    "Slack token": [f"xoxb-123456789012-{RANDOM[:24]}"],
    "Slack webhook": [f"hooks.slack.com/services/T012ABC34/B012ABC34/{RANDOM[:24]}"],
    "AWS key": ["AKIAQ4Z7W5TR3BN2LK6M", "ASIAQ4Z7W5TR3BN2LK6M"],
    "Hugging Face token": [f"hf_{string.ascii_letters[10:44]}"],
    "Google key": [f"AIza{RANDOM[:35]}"],
    "JSON web token": [f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{RANDOM}"],
    "private key": [f"-----BEGIN {kind}PRIVATE KEY-----\n{RANDOM}" for kind in ("", "RSA ", "OPENSSH ", "EC ")],
    "bearer token": [f"Bearer {RANDOM}"],
    "basic password": ["Basic " + base64.b64encode(b"me:hunter22").decode()],
    "password in an address": ["://me:hunter22@", "://ann:s3cret!@"],
}


@pytest.mark.parametrize(("kind", "secret"), [(kind, one) for kind, several in FORMS.items() for one in several])
def test_a_known_form_is_found_between_other_text(kind: str, secret: str) -> None:
    for before, after in (("", ""), ('{"a": "', '"}'), ("x=", "\n"), ("\\n", "\\n")):
        text = f"{before}{secret}{after}"
        assert kind in [form for _, _, form in find_forms(text)], text
        cleaned = SecretScan(()).replace(text)
        assert secret not in cleaned and f"[secret {kind}]" in cleaned
        assert kind in scan_environment().find(text.encode())


def test_what_only_begins_like_one_is_none() -> None:
    text = "task-based risk-averse desk-1a2b3c4d5e6f7g8h9i0j sk-learn hf_model ghp_x AKIA eyJ Bearer of news Basic idea"
    text += " https://github.com/a/b@v1 ssh://git@host:22/x -----BEGIN PRIVATE KEY----- sk-your-api-key-1a2b3c4d5e6f"
    assert list(find_forms(text)) == [] and replace_secrets(text) == text


def test_values_of_the_environment_are_found_and_plain_words_are_not() -> None:
    environ = {
        "A_KEY": "q7c1f0e9d8b7a6c5", "B_TOKEN": "EMPTY", "C_SECRET": "production", "D_PASSWORD": "12345678901",
        "E_KEY": "/home/ann/key", "F_NAME": "q1w2e3r4t5y6", "G_URL": "postgres://me:hunter22@host/db",
        "TOKENIZERS_PARALLELISM": "false", "H_KEY": "a key of words 1a2b3c",
    }  # fmt: skip
    assert list(environment_secrets(environ)) == ["A_KEY", "G_URL"]
    scan = SecretScan.of(environ)
    assert scan.find("production q1w2e3r4t5y6 12345678901 false /home/ann/key", forms=False) == []
    assert scan.find(b"\xff\x00q7c1f0e9d8b7a6c5", forms=False) == ["A_KEY"]
    assert scan.replace("?db=postgres%3A%2F%2Fme%3Ahunter22%40host%2Fdb") == "?db=[secret G_URL]"


def test_a_variable_that_a_judges_file_names_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltmeter.safety.secret_scan._named", set())
    monkeypatch.setenv("GRADER", "plain-value-7")
    assert not scan_environment().find(b"plain-value-7") and not is_telling("GRADER")
    name_secret("GRADER")
    assert replace_secrets("said plain-value-7") == "said [secret GRADER]"


HOSTILE = (
    "sk-", " sk-", "-eyJ", " eyJa.", "eyJ", "://", "://a:", "://:@", "Bearer ", "Bearer", "Basic ", "-----BEGIN ",
    "-----BEGIN A B C ", " SG.", "xoxb-", " AKIA", "hooks.slack.com/services/", " sk-a1b2c3d4e5f6g7h8i9",
)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_time_linear_in_its_length(piece: str) -> None:
    text, began = piece * (400_000 // len(piece)), time.process_time()
    SecretScan(()).replace(text)
    assert time.process_time() - began < 3.0  # a fifth of a second; what is quadratic takes minutes
