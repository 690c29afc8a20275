"""`AccountBook`: people, their roles, open invitations and sessions, in one SQLite file of the state folder.

Secrets are drawn with 256 bits and only their SHA-256 is stored: who reads the file can sign in as nobody.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, get_args

from tiltmeter.errors import AttachError
from tiltmeter.view.payloads.people import PageRole
from tiltmeter.view.server.access import (
    RequestError,
    constant_time_equal,
    digest,
    ensure_private_folder,
    parse_patterns,
)

DAY = 86_400.0
INVITATION_SECONDS = 7 * DAY
SESSION_SECONDS = 30 * DAY
FILE = "accounts.sqlite"
LAYOUT = 2  # PRAGMA user_version

_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")  # at most as long as a rater's name may be
_TABLES = """
CREATE TABLE account (name TEXT PRIMARY KEY, roles TEXT NOT NULL, created REAL NOT NULL, revoked REAL,
  runs TEXT NOT NULL DEFAULT '*') STRICT;
CREATE TABLE invitation (digest TEXT PRIMARY KEY, name TEXT NOT NULL, expires REAL NOT NULL) STRICT;
CREATE TABLE session (digest TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL) STRICT;
CREATE TABLE served (url TEXT NOT NULL) STRICT;
"""
_FROM_1 = "ALTER TABLE account ADD COLUMN runs TEXT NOT NULL DEFAULT '*'"


class Rights(NamedTuple):
    """What an account may do, and with which runs."""

    roles: frozenset[PageRole]
    runs: tuple[str, ...]  # patterns


NO_RIGHTS = Rights(frozenset(), ())


class Account(NamedTuple):
    """A person, what they may do, and whether they still may."""

    name: str
    roles: frozenset[PageRole]
    created: float  # seconds since 1970
    revoked: float | None
    runs: tuple[str, ...]  # patterns of those they may see, label and act on
    sessions: int  # browsers that are signed in
    invited: bool  # an invitation is open


class AccountBook:
    """The accounts of a team's server. Every process and thread opens the file for itself, and a change counts at once.

    >>> import tempfile
    >>> book = AccountBook(Path(tempfile.mkdtemp()) / "state")
    >>> token, person = book.redeem_code(book.invite("alice", ["label"]))
    >>> book.find_session(token)
    'alice'
    >>> book.revoke("alice"), book.find_session(token)
    (True, None)
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._local = threading.local()
        self._watching: tuple[int, sqlite3.Connection] | None = None  # by one process
        self._lock = threading.Lock()
        ensure_private_folder(folder)
        before = os.umask(0o177)
        try:
            with self._open() as database:
                _make_tables(database)
        except sqlite3.Error as error:
            raise AttachError(f"{self.path} cannot be used: {error}; name another folder with --state") from None
        finally:
            os.umask(before)

    def invite(self, name: str, roles: Iterable[str], runs: Iterable[str] | None = None) -> str:
        """The code of an invitation, which works once and for a week. A name that is there gets these roles, and may
        come back if it was revoked; its other open invitations end. `runs`: patterns; without them a new account may
        see every run, and one that is there keeps those it has."""
        name, now = account_name(name), time.time()
        patterns = None if runs is None else "\n".join(parse_patterns(runs))
        code = secrets.token_urlsafe(32)
        with self._open() as database:
            database.execute(
                "INSERT INTO account (name, roles, created, runs) VALUES (?, ?, ?, coalesce(?, '*')) "
                "ON CONFLICT (name) DO UPDATE SET roles = excluded.roles, revoked = NULL, runs = coalesce(?, runs)",
                (name, ",".join(sorted(parse_roles(roles))), now, patterns, patterns),
            )
            database.execute("DELETE FROM invitation WHERE name = ? OR expires < ?", (name, now))
            database.execute("INSERT INTO invitation VALUES (?, ?, ?)", (digest(code), name, now + INVITATION_SECONDS))
        return code

    def redeem_code(self, code: str) -> tuple[str, str]:
        """A new session's token, and the name, for an invitation: of two who try at once, one succeeds."""
        now, token = time.time(), secrets.token_urlsafe(32)
        with self._open() as database:
            row = database.execute(
                "DELETE FROM invitation WHERE digest = ? RETURNING name, expires", (digest(code),)
            ).fetchone()
            if row is None or row[1] < now:
                raise RequestError(401, "this invitation was used, withdrawn or is older than a week: ask for another")
            database.execute("DELETE FROM session WHERE expires < ?", (now,))
            expires = now + SESSION_SECONDS
            database.execute("INSERT INTO session VALUES (?, ?, ?, ?)", (digest(token), row[0], now, expires))
        return token, str(row[0])

    def find_session(self, token: str) -> str | None:
        """The name of the account that a token is of; None for none, and for one that has expired."""
        return self.name_of_session(digest(token))

    def name_of_session(self, mark: str) -> str | None:
        """The same by the hash of the token."""
        with self._open() as database:
            row = database.execute("SELECT digest, name, expires FROM session WHERE digest = ?", (mark,)).fetchone()
        if row is None or not constant_time_equal(mark, row[0]) or row[2] < time.time():
            return None
        return str(row[1])

    def rights_of(self, name: str) -> Rights | None:
        """The rights of an account: none of one that was revoked. None if there is no such account."""
        with self._open() as database:
            row = database.execute("SELECT roles, revoked, runs FROM account WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        if row[1] is not None:
            return NO_RIGHTS
        return Rights(parse_roles(row[0].split(",")), tuple(row[2].split("\n")))

    def version(self) -> int:
        """A number that changes whenever the file does, by whichever process."""
        with self._lock:
            if self._watching is None or self._watching[0] != os.getpid():
                self._watching = os.getpid(), sqlite3.connect(self.path, timeout=10.0, check_same_thread=False)
            (number,) = self._watching[1].execute("PRAGMA data_version").fetchone()
        return int(number)

    def revoke(self, name: str) -> bool:
        """End an account, its sessions and its invitations. False if there is none."""
        with self._open() as database:
            changed = database.execute("UPDATE account SET revoked = ? WHERE name = ?", (time.time(), name.lower()))
            for table in ("session", "invitation"):
                database.execute(f"DELETE FROM {table} WHERE name = ?", (name.lower(),))
        return changed.rowcount > 0

    def list_accounts(self) -> list[Account]:
        now = time.time()
        with self._open() as database:
            rows = database.execute(
                "SELECT name, roles, created, revoked, runs, "
                "(SELECT count(*) FROM session WHERE session.name = account.name AND expires >= ?), "
                "(SELECT count(*) FROM invitation WHERE invitation.name = account.name AND expires >= ?) "
                "FROM account ORDER BY name",
                (now, now),
            ).fetchall()
        return [
            Account(
                name, parse_roles(roles.split(",")), created, revoked, tuple(runs.split("\n")), signed_in, bool(codes)
            )
            for name, roles, created, revoked, runs, signed_in, codes in rows
        ]

    def remember_url(self, url: str) -> None:
        """Keep the address that people reach the server by, for invitations."""
        with self._open() as database:
            database.execute("DELETE FROM served")
            database.execute("INSERT INTO served VALUES (?)", (url,))

    def url(self) -> str:
        """The address that the server last had; "" if it never ran."""
        with self._open() as database:
            row = database.execute("SELECT url FROM served").fetchone()
        return "" if row is None else str(row[0])

    def _open(self) -> sqlite3.Connection:
        """This thread's connection, in a transaction when it is entered. A forked process opens its own: SQLite forbids
        to share one."""
        pid, database = getattr(self._local, "opened", (0, None))
        if pid != os.getpid() or database is None:
            database = sqlite3.connect(self.path, timeout=10.0)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(
                "PRAGMA synchronous = FULL"
            )  # a revocation that was said to be done must outlive a power cut
            self._local.opened = (os.getpid(), database)
        return database


def account_name(text: str) -> str:
    """The name of an account, in small letters, so that two spellings are not two people.

    >>> account_name("Alice@Lab.example")
    'alice@lab.example'
    """
    if not _NAME.fullmatch(name := text.lower()):
        raise AttachError(f"{text!r} is no name of an account: letters, digits and ._@+-, up to 64")
    return name


def parse_roles(roles: Iterable[str]) -> frozenset[PageRole]:
    """Roles by their names. Who may control may also view.

    >>> sorted(parse_roles(["control"])), sorted(parse_roles(["label"]))
    (['control', 'view'], ['label'])
    """
    chosen = {role for role in get_args(PageRole) for name in roles if name.strip() == role}
    if unknown := sorted({name.strip() for name in roles} - chosen):
        raise AttachError(f"{unknown[0]!r} is no role; there are {', '.join(get_args(PageRole))}")
    if not chosen:
        raise AttachError(f"an account without a role can do nothing; there are {', '.join(get_args(PageRole))}")
    return frozenset(chosen | ({"view"} if "control" in chosen else set()))


def _make_tables(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")  # of two that start at once, one makes them
    (layout,) = database.execute("PRAGMA user_version").fetchone()
    if layout == 0:
        for statement in filter(str.strip, _TABLES.split(";")):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {LAYOUT}")
    elif layout == 1:
        database.execute(_FROM_1)
        database.execute(f"PRAGMA user_version = {LAYOUT}")
    elif layout != LAYOUT:
        raise AttachError(f"its accounts are of layout {layout}, and this version knows {LAYOUT}: update it")
