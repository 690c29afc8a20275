"""Single cases of `hostile_stores_cases.toml`: keys of gold and judges, trackers, TLS, signals, planted caches.

Each runs in a process as the other surfaces do, and everything that is checked after those is checked after these. What
it finds by itself it prints as `PROBLEM kind: text`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar

import tiltmeter
from hostile_stores_plants import Place
from hostile_stores_surfaces import SECRETS, observe, run_cli
from tiltmeter.errors import TiltmeterError

KEY = SECRETS["OPENAI_API_KEY"]
JUDGE_KEY = SECRETS["TILTMETER_JUDGE_KEY"]
HOOK = "canary-hook-40d1"


@dataclass(frozen=True)
class Scene:
    """Where a single case plays."""

    address: str
    place: Place

    @property
    def project(self) -> Path:
        """The person's own code; nothing looks for secrets there."""
        return self.place.root / "project"

    def spool(self) -> Path:
        return next((self.place.state / "tiltmeter" / "spool").glob("*/*/run.json")).parent


def problem(kind: str, text: str) -> None:
    print(f"PROBLEM {kind}: {text}")


# -- keys of gold functions ------------------------------------------------------------------------------------------

HEAD = "import os\n"
BODY = "def score(prompt, completion, **_):\n    return 1.0 if {used} and 'a' in completion else 0.0\n"
GOLD = {
    "gold key in a global": HEAD + "API_KEY = os.environ['OPENAI_API_KEY']\n" + BODY.format(used="API_KEY"),
    "gold key in a header dictionary": HEAD
    + "HEADERS = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n" + BODY.format(used="HEADERS"),
    "gold key in a closure": HEAD + "def make(token):\n    def score(prompt, completion, **_):\n"
    "        return 1.0 if token and 'a' in completion else 0.0\n    return score\n"
    "score = make(os.environ['OPENAI_API_KEY'])\n",
    "gold key as a default argument": HEAD + "def score(prompt, completion, key=os.environ['OPENAI_API_KEY'], **_):\n"
    "    return 1.0 if key and 'a' in completion else 0.0\n",
    "gold key as an attribute": HEAD + "class Client:\n    def __init__(self, key):\n        self.key = key\n"
    "client = Client(os.environ['OPENAI_API_KEY'])\n" + BODY.format(used="client.key"),
    "gold key in the source file": f"KEY = {KEY!r}\n" + BODY.format(used="KEY"),
}  # fmt: skip
GOLD["gold function beside a hostile store"] = GOLD["gold key in a header dictionary"]


def pass_function(name: str, scene: Scene) -> None:
    file = scene.project / "mygold.py"
    file.write_text(GOLD[name])
    spec = importlib.util.spec_from_file_location("mygold", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mygold"] = module
    spec.loader.exec_module(module)
    try:
        with tiltmeter.open_run(scene.address, gold=module.score, monitor=False) as run:
            observe(run, 30)
        run_cli("watch", str(run.directory), "--once", "--gold", f"{file}:score")
    except TiltmeterError as error:
        print(f"refused: {error}")
    run_cli("upload", scene.address, "--minutes", "0.1")
    run_cli("report", scene.address, "--html", str(scene.place.scratch / "report.html"))


def give_settings(scene: Scene) -> None:
    settings = {"lr": 0.1, "api_key": KEY, "headers": {"Authorization": f"Bearer {KEY}"}, "args": ["--key", KEY]}
    try:
        with tiltmeter.open_run(scene.address, settings=settings, monitor=False) as run:
            observe(run, 30)
    except TiltmeterError as error:
        print(f"refused: {error}")
    run_cli("upload", scene.address, "--minutes", "0.1")
    run_cli("report", scene.address, "--html", str(scene.place.scratch / "report.html"))


def raise_with_key(scene: Scene) -> None:
    file = scene.project / "raising.py"
    body = "def score(prompt, completion):\n    raise RuntimeError('401 for ' + os.environ['OPENAI_API_KEY'])\n"
    file.write_text(HEAD + body)
    run_cli("watch", str(scene.spool()), "--once", "--gold", f"{file}:score")
    run_cli("upload", scene.address, "--minutes", "0.1")
    run_cli("show", scene.address, "--more")


# -- servers that listen ---------------------------------------------------------------------------------------------


class _Listening(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    heard: ClassVar[list[str]] = []
    echo: ClassVar[bool] = False

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = dict(self.headers.items())
        self.heard.append(f"{self.command} {self.path} {headers} {body.decode('latin-1')}")
        text = headers.get("Authorization", "") if self.echo else "0.5"
        answer = {"choices": [{"message": {"content": f"score: {text}"}}], "error": text}
        data = json.dumps(answer).encode()
        self.send_response_only(200 if not self.echo else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_HEAD = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def listening(*, echo: bool = False, context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[str]]]:
    """A port, and everything that it gets."""
    heard: list[str] = []
    handler = type("Handler", (_Listening,), {"heard": heard, "echo": echo})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], heard
    finally:
        server.shutdown()


def ask_judge(scene: Scene, *, echo: bool) -> None:
    with listening(echo=echo) as (port, heard):
        lines = f'url = "http://127.0.0.1:{port}/v1"\nmodel = "m"\nguide = "good"\nkey_env = "TILTMETER_JUDGE_KEY"\n'
        (scene.project / "judge.toml").write_text(lines + "timeout = 2\nretries = 0\n")
        run_cli("watch", str(scene.spool()), "--once", "--gold", str(scene.project / "judge.toml"))
        run_cli("upload", scene.address, "--minutes", "0.1")
        run_cli("show", scene.address, "--more")
        if not any(JUDGE_KEY in text for text in heard):
            print("the judge was never asked with its key")


def track_offline(scene: Scene) -> None:
    os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": str(scene.place.scratch), "WANDB_SILENT": "true"}
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        os.environ[name] = str(scene.place.scratch / "wandb-own")
    run_cli("track", str(scene.spool()), "--once", "--wandb", "project")
    if not list(scene.place.scratch.glob("wandb*")):
        print("W&B wrote nothing")


def track_to(scene: Scene, option: str) -> None:
    with listening() as (port, heard):
        path = f"/T0/{HOOK}" if option == "--webhook" else ""
        run_cli("track", str(scene.spool()), "--once", option, f"http://127.0.0.1:{port}{path}")
    sent = "\n".join(heard)
    for secret in SECRETS.values():
        if secret in sent:
            problem("secrets_found", f"{option} sent {secret[:12]}")
    if option == "--otlp" and "answer 1 0" in sent:
        problem("secrets_found", "completions were sent to the collector")
    for path_of in scene.place.state.rglob("*"):
        if option == "--webhook" and path_of.is_file() and HOOK.encode() in path_of.read_bytes():
            problem("secrets_found", f"the webhook's address is in {path_of.name}")
    print(f"{len(heard)} requests were heard")


# -- TLS -------------------------------------------------------------------------------------------------------------


def certificate(folder: Path, *, days: int, host: str) -> ssl.SSLContext:
    """Of nobody: signed by its own key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    alternative = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
        .not_valid_before(now - timedelta(days=400)).not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False).sign(key, hashes.SHA256())
    )  # fmt: skip
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "tls.pem").write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    return context


def ask_by_tls(scene: Scene, *, days: int, host: str, trusted: bool) -> None:
    context = certificate(scene.project, days=days, host=host)
    if trusted:  # by its signature: what is wrong is its name or its time
        os.environ["SSL_CERT_FILE"] = str(scene.project / "tls.pem")
    with listening(context=context) as (port, heard):
        os.environ |= {"AWS_ENDPOINT_URL": f"https://127.0.0.1:{port}", "AWS_REGION": "us-east-1"}
        os.environ |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ALLOW_HTTP": "true"}
        code = run_cli("show", "s3://bucket/runs/run")
        if code == 0 or heard:
            problem("not_refused", f"exit {code}, {len(heard)} requests were sent: {heard[:1]}")


def ask_plainly(scene: Scene) -> None:
    with listening() as (port, heard):
        os.environ.pop("AWS_ALLOW_HTTP", None)
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1"}
        os.environ |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        code = run_cli("show", "s3://bucket/runs/run")
        if code == 0 or heard:
            problem("not_refused", f"exit {code}, {len(heard)} requests were sent")


# -- signals ---------------------------------------------------------------------------------------------------------


def send_soon(number: int, seconds: float) -> None:
    def send() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


def terminate(number: int, frame: object) -> None:
    raise SystemExit(143)


def interrupted(work: Callable[[], None], number: int, seconds: float) -> bool:
    """Whether the handler's exception came through."""
    send_soon(number, seconds)
    try:
        work()
        time.sleep(1.0)  # it came after the work was done
    except (KeyboardInterrupt, SystemExit):
        return True
    return False


def hand_over(scene: Scene, number: int) -> None:
    signal.signal(signal.SIGTERM, terminate)
    for attempt in range(4):
        run = tiltmeter.open_run(scene.address, monitor=False)
        called = 0

        def observe_many(run: Any = run) -> None:
            nonlocal called
            for step in range(100, 400):
                called += 1
                observe(run, step)

        if not interrupted(observe_many, number, 0.01 + 0.01 * attempt):
            problem("uncounted", "the handler's exception did not come through a hand-over")
        run.close()
        check_counts(run.directory, called)


def close_early(scene: Scene, number: int) -> None:
    signal.signal(signal.SIGTERM, terminate)
    for attempt in range(4):
        run = tiltmeter.open_run(scene.address, monitor=False)
        for step in range(100, 160):
            observe(run, step)
        if not interrupted(run.close, number, 0.002 * attempt):
            problem("uncounted", "the handler's exception did not come through close()")
        run.close()
        check_counts(run.directory, 60)


def check_counts(run: Path | None, called: int) -> None:
    """Of what was handed over, all but the call that was cut short is stored or counted as lost."""
    assert run is not None
    newest = max((int(path.parent.name), path.parent) for path in run.glob("rollouts/*/attempt.json"))[1]
    stored = len(list(newest.glob("*-0.parquet")))
    counters = newest / "0.counters.json"
    facts = json.loads(counters.read_text()) if counters.exists() else {}
    counted = facts.get("counters", facts)
    lost = sum(int(counted.get(name, 0)) for name in ("thinned", "dropped"))
    if not counters.exists() or stored + lost < called - 1:
        problem("uncounted", f"{called} handed over, {stored} stored, counters {counted}")


def upload_cut_short(scene: Scene, number: int) -> None:
    with tiltmeter.open_run(scene.address, monitor=False) as run:
        for step in range(100, 160):
            observe(run, step)
    for part in range(3):
        pid = os.fork()
        if pid == 0:
            os._exit(run_cli("upload", scene.address, "--minutes", "0.2"))
        time.sleep(0.03 + 0.05 * part)
        os.kill(pid, number)
        until = time.monotonic() + 8
        while not (ended := os.waitpid(pid, os.WNOHANG)[0]) and time.monotonic() < until:
            time.sleep(0.01)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            problem("hangs", "an upload that was told to end went on for 8 s")
    if run_cli("upload", scene.address, "--minutes", "1.5"):
        problem("uncounted", "the next upload did not complete")
    if run_cli("show", scene.address) not in (0, 1, 2, 3):
        problem("uncounted", "what was uploaded cannot be read")


# -- planted caches and keys -----------------------------------------------------------------------------------------


def plant_key(scene: Scene) -> None:
    run = scene.spool()
    identity = json.loads((run / "run.json").read_text())["id"]
    key = scene.place.state / "tiltmeter" / f"{identity}.snapshot-key"

    def write(mode: int, owner: int) -> None:
        key.write_bytes(b"0" * 64)
        key.chmod(mode)
        if os.geteuid() == 0:
            os.chown(key, owner, owner)

    ways: tuple[Callable[[], object], ...] = (
        lambda: key.symlink_to(scene.place.home / "docs" / "chapter1.tex"),
        lambda: key.symlink_to(scene.place.home / "nowhere"),
        lambda: write(0o666, os.geteuid()),
        lambda: write(0o600, 54321),
    )
    for way in ways:
        key.unlink(missing_ok=True)
        way()
        run_cli("show", str(run))
        run_cli("watch", str(run), "--once")


def plant_snapshot(scene: Scene) -> None:
    run = scene.spool()
    (run / "cache" / "readings").mkdir(parents=True, exist_ok=True)
    for name in ("page_snapshot", "restart_snapshot", "readings/0"):
        (run / "cache" / name).write_bytes(b"\x80\x04\x95" + b"0" * 200)
    for name in ("cache/restart_snapshot-key", "snapshot-key", ".snapshot-key"):
        (run / name).write_bytes(b"0" * 64)
    for words in (("show", str(run)), ("watch", str(run), "--once"), ("report", str(run), "--md", "-")):
        run_cli(*words)


def plant_copys_cache(scene: Scene) -> None:
    """What a store has below `cache/` and of dot files never gets into a copy."""
    store = Path(scene.address.removeprefix("file://"))
    for name in ("cache/page_snapshot", "cache/list_entry.json", ".mirror.json", ".copy"):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text("planted-by-the-store")
    for words in (("show", scene.address), ("rollouts", scene.address, "--phrases")):
        run_cli(*words)
    for path in scene.place.cache.rglob("*"):
        if path.is_file() and b"planted-by-the-store" in path.read_bytes():
            problem("written_outside", f"the store wrote {path.name} into the reader's copy")


def link_copy(scene: Scene, *, spool: bool) -> None:
    if spool:
        folder = scene.spool()
    else:
        run_cli("show", scene.address)
        folder = next((scene.place.cache / "tiltmeter" / "remote").glob("*/*"))
    folder.rename(folder.with_name("aside"))
    folder.symlink_to(scene.place.home / "docs")
    for words in (("show", scene.address), ("upload", scene.address, "--minutes", "0.1")):
        run_cli(*words)
    if spool:
        try:
            with tiltmeter.open_run(scene.address, monitor=False) as run:
                observe(run, 30)
        except TiltmeterError as error:
            print(f"refused: {error}")


SINGLES: dict[str, Callable[[Scene], None]] = {
    **{name: partial(pass_function, name) for name in GOLD},
    "gold key in settings": give_settings,
    "gold key in an exception": raise_with_key,
    "judge key in judge.toml": lambda scene: ask_judge(scene, echo=False),
    "judge endpoint that returns the key": lambda scene: ask_judge(scene, echo=True),
    "W&B offline directory": track_offline,
    "OTLP exporter": lambda scene: track_to(scene, "--otlp"),
    "webhook": lambda scene: track_to(scene, "--webhook"),
    "TLS with a wrong certificate": lambda scene: ask_by_tls(scene, days=400, host="127.0.0.1", trusted=False),
    "TLS for another name": lambda scene: ask_by_tls(scene, days=400, host="other.example", trusted=True),
    "TLS that ended": lambda scene: ask_by_tls(scene, days=-1, host="127.0.0.1", trusted=True),
    "plain http unasked": ask_plainly,
    "SIGINT while handing over": lambda scene: hand_over(scene, signal.SIGINT),
    "SIGTERM while handing over": lambda scene: hand_over(scene, signal.SIGTERM),
    "SIGINT while closing": lambda scene: close_early(scene, signal.SIGINT),
    "SIGTERM while closing": lambda scene: close_early(scene, signal.SIGTERM),
    "SIGINT while uploading": lambda scene: upload_cut_short(scene, signal.SIGINT),
    "SIGTERM while uploading": lambda scene: upload_cut_short(scene, signal.SIGTERM),
    "SIGKILL while uploading": lambda scene: upload_cut_short(scene, signal.SIGKILL),
    "planted snapshot key in the state folder": plant_key,
    "planted snapshot sealed with a chosen key": plant_snapshot,
    "cache of a copy planted by the store": plant_copys_cache,
    "cache folder of copies is a link": lambda scene: link_copy(scene, spool=False),
    "spool folder is a link": lambda scene: link_copy(scene, spool=True),
}
