"""`tiltmeter serve`: the page for a team, and who may do what there."""

from __future__ import annotations

import json as json_module
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tiltmeter.rundir.remote.address import parse_address
from tiltmeter.view.server.access import EVERY_RUN
from tiltmeter.view.server.serve import serve as serve_until_interrupted
from tiltmeter.view.server.team.accounts import Account, AccountBook
from tiltmeter.view.server.team.start import TeamOptions, default_state, open_team_server


def serve(
    roots: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of runs, or addresses on object storage (s3://bucket/runs).", metavar="ROOT..."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port.", metavar="N", min=0, max=65535)] = 8787,
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    url: Annotated[
        str,
        typer.Option(
            help="Address by which people reach it, as a proxy or a forwarded port has it: https://lab.example/runs/.",
            metavar="URL",
        ),
    ] = "",
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain (PEM), to speak TLS.", metavar="FILE")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).", metavar="FILE")] = None,
    socket: Annotated[
        Path | None,
        typer.Option(help="Listen on a Unix socket instead, to which --proxy-user alone may talk.", metavar="PATH"),
    ] = None,
    proxy_header: Annotated[
        str,
        typer.Option(help="Header in which a reverse proxy names the person it has signed in.", metavar="NAME"),
    ] = "",
    proxy_user: Annotated[
        str, typer.Option(help="User that the proxy runs as, by name or number.", metavar="USER")
    ] = "",
    proxy_secret: Annotated[
        Path | None,
        typer.Option(
            help="File of yours alone (mode 0600, made if missing) with the secret that the proxy sends in "
            "Tiltmeter-Proxy-Secret; or set TILTMETER_PROXY_SECRET.",
            metavar="FILE",
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network from which the secret counts; else from everywhere.", metavar="ADDRESS"),
    ] = None,
    proxy_role: Annotated[
        str,
        typer.Option(help="What people named by the proxy may do without an account.", metavar="ROLES"),
    ] = "",
    proxy_runs: Annotated[
        list[str] | None,
        typer.Option(help="Runs that these people may see, by path; every run if not given.", metavar="PATTERN"),
    ] = None,
    accounts: Annotated[
        bool, typer.Option("--accounts", help="List who may use the server and what they may do, and exit.")
    ] = False,
    invite: Annotated[
        str,
        typer.Option(help="Give this person an account, or other roles, print a link, and exit.", metavar="NAME"),
    ] = "",
    role: Annotated[
        str,
        typer.Option(
            help="With --invite: what they may do: view (if not given), label, control, or several with commas.",
            metavar="ROLES",
        ),
    ] = "",
    runs: Annotated[
        list[str] | None,
        typer.Option(
            help="With --invite: runs that they may see, label and act on: a path below what is served, as 'math' or "
            "'code/*-7b'. Every run if not given; an account that is there keeps its own.",
            metavar="PATTERN",
        ),
    ] = None,
    revoke: Annotated[
        str,
        typer.Option(
            help="End this person's account and everything signed in by it, at once, and exit.", metavar="NAME"
        ),
    ] = "",
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Folder of the accounts; by default one of yours.", metavar="FOLDER"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The address, or the accounts, as one line of JSON.")] = False,
) -> None:
    """Show the runs of a team in a browser: everybody with an account, a role and a name that their acts carry.

    Example: tiltmeter serve /data/runs s3://bucket/runs --url https://lab.example/runs/ --tls-cert cert.pem
    --tls-key key.pem

    People come in by invitation (tiltmeter serve --invite NAME), or through a reverse proxy that signs them in. The
    link of an invitation works once, within a week. `view` looks; `label` answers blind labelling tasks, and by itself
    sees no reward; `control` looks and acts on runs. A running server need not be restarted.
    """
    if sum((accounts, bool(invite), bool(revoke))) > 1:
        raise typer.BadParameter("one of --accounts, --invite and --revoke at a time")
    if (role or runs) and not invite:
        raise typer.BadParameter("--role and --runs say what somebody with --invite may do")
    if accounts or invite or revoke:
        if roots:
            raise typer.BadParameter("--accounts, --invite and --revoke take no ROOT: they serve nothing")
        _keep_accounts(AccountBook(_state_folder(state)), invite, role or "view", runs, revoke, json)
        return
    if not roots:
        raise typer.BadParameter("name a folder of runs, or an address", param_hint="ROOT...")
    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("--tls-cert and --tls-key go together")
    addresses = [(root, parse_address(root)) for root in roots]
    server = open_team_server(
        TeamOptions(
            runs=[root for root, address in addresses if address is None],
            addresses=[address for _, address in addresses if address is not None],
            state=_state_folder(state),
            host=host,
            port=port,
            url=url,
            certificate=(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
            socket=socket,
            proxy_header=proxy_header,
            proxy_user=proxy_user,
            proxy_secret=proxy_secret,
            proxies=trusted_proxy or (),
            proxy_roles=[role for role in proxy_role.split(",") if role.strip()],
            proxy_runs=proxy_runs or (),
        )
    )

    def started() -> None:
        if json:
            where = {"port": server.port} if socket is None else {"socket": str(socket)}
            sys.stdout.write(json_module.dumps({"url": server.address, **where}) + "\n")
            sys.stdout.flush()
            return
        console = Console(highlight=False, markup=False, soft_wrap=True)
        console.print(Text.assemble("Serving at ", (server.address, "bold")))
        if not AccountBook(_state_folder(state)).list_accounts() and not proxy_header:
            console.print(Text("Nobody has an account yet: tiltmeter serve --invite NAME --role control"))
        console.print(Text("Ctrl-C ends it.", "dim"))

    try:
        serve_until_interrupted(server, started)
    finally:
        if socket is not None:
            socket.unlink(missing_ok=True)


def _keep_accounts(book: AccountBook, invite: str, role: str, runs: list[str] | None, revoke: str, json: bool) -> None:
    """Invite somebody, end an account, or list all."""
    if invite:
        code = book.invite(invite, role.split(","), runs or None)
        sys.stdout.write(f"{book.url() or 'http://127.0.0.1:8787/'}#code={code}\n")
        return
    if revoke:
        if not book.revoke(revoke):
            raise typer.BadParameter(f"there is no account {revoke!r}", param_hint="--revoke")
        sys.stderr.write(f"{revoke}: revoked\n")
        return
    listed = book.list_accounts()
    if json:
        sys.stdout.write(json_module.dumps({"accounts": [_facts(one) for one in listed]}) + "\n")
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for one in listed:
        console.print(Text(f"{one.name:<24} {','.join(sorted(one.roles)):<20} {_standing(one)}; {_runs(one)}"))
    if not listed:
        console.print(Text("Nobody yet. Invite somebody: tiltmeter serve --invite NAME --role view"))


def _facts(account: Account) -> dict[str, object]:
    return {**account._asdict(), "roles": sorted(account.roles)}


def _runs(account: Account) -> str:
    return "every run" if account.runs == EVERY_RUN else f"runs {' '.join(account.runs)}"


def _standing(account: Account) -> str:
    if account.revoked is not None:
        return f"revoked {time.strftime('%Y-%m-%d', time.localtime(account.revoked))}"
    signed_in = f"signed in on {account.sessions}" if account.sessions else "never signed in"
    return f"{signed_in}, invitation open" if account.invited else signed_in


def _state_folder(folder: Path | None) -> Path:
    return folder or default_state()
