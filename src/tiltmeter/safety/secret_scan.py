"""Finds secrets in what is about to leave the machine: keys, tokens, passwords.

Two kinds of evidence. *Own* secrets are the values of this process's environment variables whose name tells (`…_KEY`,
`…_TOKEN`), whose value has a known form, or that a judge's file names; they are found exactly, in any text, also a
model's. *Known forms* are those of services (`sk-…`, `ghp_…`, `AKIA…`), of JSON web tokens, private keys, `Bearer` and
`Basic` headers and addresses with a password; a model may write such a text by itself, so they count only in text that
is rendered and in code and settings.

Libraries for this, such as detect-secrets, scan repositories: they need requests and PyYAML, go line by line through
dozens of plug-ins, and do not know the environment's values. Here every form begins with a fixed text that is looked up
first, and every expression takes time linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import os
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

SHORTEST = 8  # characters of a value that is looked for inside other text
SHORTEST_WHOLE = 6  # of one that a text is as a whole
WORD = 20  # characters below which a value of letters alone may be a plain word
LONGEST = 1 << 16  # characters of a variable's value
SWITCHES = 3  # between letters and digits, side by side, from which on a text is taken for a random one

_TELLING = frozenset({
    "key", "keys", "apikey", "apikeys", "token", "tokens", "secret", "secrets", "password", "passwords", "passwd",
    "pwd", "passphrase", "credential", "credentials", "authorization", "webhook",
})  # fmt: skip
#: Words that make a key or token harmless: of data, of sorting, of a tokenizer.
_HARMLESS = frozenset({
    "answer", "answers", "bos", "cache", "cls", "column", "config", "data", "dataset", "dedup", "dict", "doc", "end",
    "eos", "feature", "field", "foreign", "group", "hash", "id", "index", "json", "label", "map", "mask", "max",
    "metric", "min", "new", "num", "pad", "partition", "primary", "prompt", "public", "question", "row", "sample",
    "sep", "sort", "special", "start", "stop", "task", "think", "unk", "uuid", "vocab",
})  # fmt: skip
_WORD_CHARACTERS = frozenset(f"{string.ascii_letters}{string.digits}_-")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SWITCH = re.compile(r"(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
_PLACEHOLDER = re.compile(r"example|placeholder|xxxx|\*\*\*|your[_-]|changeme|redacted", re.I)
_NO_PASSWORD = frozenset({"password", "passwd", "pass", "pw", "pwd", "secret", "user", "xxx", "token", "key"})
_named: set[str] = set()


@dataclass(frozen=True, slots=True)
class SecretForm:
    """A known form: a text that it begins with, the whole, and a closer look at what follows the beginning."""

    kind: str
    start: str
    whole: re.Pattern[str]
    check: Callable[[str], bool]


def is_random(text: str) -> bool:
    """Whether letters and digits alternate as they do in keys and not in names.

    >>> is_random("9f86d081884c7d65"), is_random("answer_extracted_v2_final"), is_random("gpt-4o-mini-2024-07-18")
    (True, False, False)
    """
    return sum(1 for _ in zip(range(SWITCHES), _SWITCH.finditer(text), strict=False)) == SWITCHES


def _is_mixed(text: str) -> bool:
    return not text.islower() and not text.isupper()


def _is_basic(text: str) -> bool:
    """Whether it is a name and a password, as HTTP sends them."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in plain and plain.isascii() and plain.decode("ascii").isprintable()


def _is_password(text: str) -> bool:
    password = text.rpartition("@")[0].partition(":")[2]
    return password.lower() not in _NO_PASSWORD and not password.startswith(("{", "$", "<", "%(", "[", "*"))


def _form(kind: str, start: str, rest: str, check: Callable[[str], bool] = is_random) -> SecretForm:
    return SecretForm(kind, start, re.compile(re.escape(start) + rest, re.ASCII), check)


#: Bounded and possessive: none goes back over what it has read.
_FORMS = (
    _form("API key", "sk-", r"[\w-]{16,256}+"),
    *(_form("GitHub token", f"gh{letter}_", r"[A-Za-z0-9]{30,255}+") for letter in "pousr"),
    _form("GitHub token", "github_pat_", r"\w{22,255}+"),
    _form("GitLab token", "glpat-", r"[\w-]{20,255}+"),
    _form("Slack token", "xox", r"[abeprs]-[A-Za-z0-9-]{10,255}+"),
    _form("Slack webhook", "hooks.slack.com/", r"(?:services|workflows)/[\w/]{20,255}+"),
    _form("Discord webhook", "discord.com/api/webhooks/", r"\d{10,30}+/[\w-]{30,255}+"),
    _form("AWS key", "AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])", lambda text: any(map(str.isdigit, text))),
    _form("AWS key", "ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])", lambda text: any(map(str.isdigit, text))),
    _form("Azure key", "AccountKey=", r"[A-Za-z0-9+/]{40,255}+"),
    _form("Hugging Face token", "hf_", r"[A-Za-z0-9]{30,255}+", _is_mixed),
    _form("Google key", "AIza", r"[\w-]{35,255}+"),
    _form("Google token", "ya29.", r"[\w-]{20,2048}+"),
    _form("Groq key", "gsk_", r"[A-Za-z0-9]{40,255}+"),
    _form("xAI key", "xai-", r"[A-Za-z0-9]{40,255}+"),
    _form("NVIDIA key", "nvapi-", r"[\w-]{40,255}+"),
    _form("Replicate token", "r8_", r"[A-Za-z0-9]{30,255}+"),
    _form("LangSmith key", "lsv2_", r"\w{30,255}+"),
    _form("PyPI token", "pypi-", r"[\w-]{50,1024}+"),
    _form("npm token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _form("SendGrid key", "SG.", r"[\w-]{16,64}+\.[\w-]{16,128}+"),
    _form("JSON web token", "eyJ", r"[\w-]{8,4096}+\.eyJ[\w-]{8,8192}+\.[\w-]{16,2048}+"),
    _form(
        "private key", "-----BEGIN ",
        r"(?:[A-Z]{1,12} ){0,3}PRIVATE KEY-----[\s\\nr]{1,8}+(?:Proc-Type|[A-Za-z0-9+/]{32})", lambda text: True,
    ),
    *(_form("bearer token", f"{word} ", r"[\w.~+/=-]{12,4096}+") for word in ("Bearer", "bearer")),
    *(_form("basic password", f"{word} ", r"[A-Za-z0-9+/]{12,1024}+={0,2}+", _is_basic) for word in ("Basic", "basic")),
    _form("password in an address", "://", r"[^\s/@:\"'<>\\]{1,64}+:[^\s/@\"'<>\\]{3,128}+@", _is_password),
)  # fmt: skip


def find_forms(text: str) -> Iterator[tuple[int, int, str]]:
    """Where a known form begins and ends, and which it is."""
    for form in _FORMS:
        at = text.find(form.start)
        while at >= 0:
            end = at + len(form.start)
            if (form.start == "://" or _begins_word(text, at)) and (match := form.whole.match(text, at)):
                end = match.end()
                if form.check(match[0][len(form.start) :]) and not _PLACEHOLDER.search(match[0]):
                    yield at, end, form.kind
            at = text.find(form.start, end)


def _begins_word(text: str, at: int) -> bool:
    """Not within `task-` or `desk-`; the `n` of a line break that is written as JSON is not part of a word."""
    return at == 0 or text[at - 1] not in _WORD_CHARACTERS or (text[at - 1] in "nrt" and text[at - 2 : at - 1] == "\\")


def is_telling(name: str) -> bool:
    """Whether a variable of this name holds a secret, going by the name.

    >>> [is_telling(name) for name in ("OPENAI_API_KEY", "hfToken", "db_password2", "SLACK_WEBHOOK_URL")]
    [True, True, True, True]
    >>> [is_telling(name) for name in ("eos_token", "ANSWER_KEY", "secret_word", "TOKENIZERS_PARALLELISM")]
    [False, False, False, False]
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if words[-1:] == ["url"] and "webhook" in words:
        words.pop()
    return bool(words) and words[-1] in _TELLING and not _HARMLESS.intersection(words)


def describe_secret(name: str, value: str) -> str:
    """Why a value of this name looks like a secret, without the value; empty if it does not.

    >>> describe_secret("API_KEY", "d6cbf53a1e9047f1"), describe_secret("secret_word", "banana")
    ('a random value', '')
    """
    for _, _, kind in find_forms(value):
        return f"{'an' if kind[0] in 'A' else 'a'} {kind}"
    if is_telling(name) and len(value) >= 16 and " " not in value and is_random(value):
        return "a random value"
    return ""


def split_at_lookups(text: str, variables: Mapping[str, str]) -> list[tuple[str, str]]:
    """A text in pieces: each as it is and without a variable, or the variable that it is the value of.

    Inside a text only values that cannot be there by chance are looked for; a text that is a value as a whole is one.

    >>> split_at_lookups("Bearer d6cbf53a1e9047f1", {"MY_KEY": "d6cbf53a1e9047f1"})
    [('Bearer ', ''), ('d6cbf53a1e9047f1', 'MY_KEY')]
    """
    whole = next((name for name, value in variables.items() if len(value) >= SHORTEST_WHOLE and value == text), "")
    if whole or not text:
        return [(text, whole)]
    for name, value in sorted(variables.items(), key=lambda item: -len(item[1])):
        if value in text and _can_be_found(value):
            before, _, after = text.partition(value)
            rest = [split_at_lookups(part, variables) if part else [] for part in (before, after)]
            return [*rest[0], (value, name), *rest[1]]
    return [(text, "")]


def name_secret(variable: str) -> None:
    """Count an environment variable among the secrets, whatever it is called: a judge's file names it as the key's."""
    _named.add(variable)


def telling_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """By name, every environment variable that is taken for a secret by its name or value; empty and short ones too."""
    return {
        name: value.strip()
        for name, value in sorted(environ.items())
        if len(value) <= LONGEST and (name in _named or _is_secret_variable(name, value))
    }


@lru_cache(4096)
def _is_secret_variable(name: str, value: str) -> bool:
    return is_telling(name) or any(True for _ in find_forms(value))


def environment_secrets(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of these variables those that can be found inside other text: no number, no path, no plain word."""
    return {name: value for name, value in telling_variables(environ).items() if _can_be_found(value)}


def _can_be_found(value: str) -> bool:
    if len(value) < SHORTEST or value.replace(".", "").replace("-", "").isdigit():
        return False
    if any(True for _ in find_forms(value)):
        return True
    if any(map(str.isspace, value)) or (value[0] in "/~." and not is_random(value)):
        return False
    return len(value) >= WORD or not value.isalpha()


@dataclass(frozen=True, slots=True)
class SecretScan:
    """A search for this process's secrets and for known forms.

    >>> scan = SecretScan.of({"MY_KEY": "d6cbf53a1e9047f1"})
    >>> scan.replace("it said d6cbf53a1e9047f1, and Bearer x1y2z3a4b5c6d7")
    'it said [secret MY_KEY], and [secret bearer token]'
    >>> scan.find(b"d6cbf53a1e9047f1"), scan.find("nothing here")
    (['MY_KEY'], [])
    """

    own: tuple[tuple[str, str], ...]  # how it may be written, and the variable; the longest first

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> SecretScan:
        own = {form: name for name, value in environment_secrets(environ).items() for form in _spellings(value)}
        return cls(tuple(sorted(own.items(), key=lambda item: (-len(item[0]), item))))

    def find(self, data: str | bytes, *, forms: bool = True) -> list[str]:
        """The variables and kinds of secrets in a text, never their values. `forms`: known forms count too."""
        text = data.decode("latin-1") if isinstance(data, bytes) else data
        names = [name for spelling, name in self.own if spelling in text]
        return sorted({*names, *(kind for _, _, kind in find_forms(text))} if forms else {*names})

    def replace(self, text: str, *, forms: bool = True) -> str:
        """The text with `[secret NAME]` or `[secret KIND]` in the place of each."""
        for spelling, name in self.own:
            if spelling in text:  # where nothing is, the very same text
                text = text.replace(spelling, f"[secret {name}]")
        if forms and (places := list(find_forms(text))):
            parts, last = [], 0
            for begin, end, kind in sorted(places):
                if begin >= last:
                    parts += [text[last:begin], f"[secret {kind}]"]
                last = max(last, end)
            text = "".join([*parts, text[last:]])
        return text


def _spellings(value: str) -> set[str]:
    """A value as it is, and as it stands in UTF-8, JSON, HTML, an address and Base64."""
    data = value.encode("utf-8", "surrogateescape")
    spellings = {value, data.decode("latin-1"), json.dumps(value)[1:-1], html.escape(value), quote(data, safe="")}
    return {*spellings, base64.b64encode(data).decode("ascii").rstrip("=")}


def scan_environment() -> SecretScan:
    """The search for the secrets of this process as it is now."""
    return _scan_of(frozenset(telling_variables().items()))


@lru_cache(4)
def _scan_of(variables: frozenset[tuple[str, str]]) -> SecretScan:
    return SecretScan.of(dict(variables))


def replace_secrets(text: str) -> str:
    """A text that will be shown to others, without this process's secrets and without known forms of secrets."""
    return scan_environment().replace(text)
