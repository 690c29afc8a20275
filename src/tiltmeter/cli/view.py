"""`tiltmeter view`: the live page of all runs below some folders."""

from __future__ import annotations

import json as json_module
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tiltmeter.cli.options import local_roots
from tiltmeter.view.server.serve import ServerOptions, open_server, serve


def view(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run directories, folders that hold some, or addresses of runs.", metavar="RUNS"),
    ] = None,
    port: Annotated[int, typer.Option(help="Port; a free one if it is taken.", metavar="N", min=0, max=65535)] = 8787,
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    trusted_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name, or name:port, by which browsers may ask.", metavar="NAME"),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            help="Listen on a Unix socket instead; --port is then the port you forward it to.", metavar="PATH"
        ),
    ] = None,
    auth: Annotated[bool, typer.Option("--auth", help="Allow an address that others can reach.")] = False,
    control: Annotated[
        bool, typer.Option("--control", help="Let the page acknowledge, approve, reject and undo.")
    ] = False,
    raters: Annotated[
        str, typer.Option(help="People who label: each gets an address of their own.", metavar="ALICE,BOB")
    ] = "",
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The addresses as one line of JSON.")] = False,
) -> None:
    """Show runs in a browser: which are healthy, which are not, since when, and the completions that prove it.

    Example: tiltmeter view runs

    Prints an address that works once, within ten minutes. Reads run directories; nothing leaves this machine. Ends with
    Ctrl-C. On another machine: ssh -L 8787:127.0.0.1:8787 HOST, then open the address here.
    """
    names = tuple(name.strip() for name in raters.split(",") if name.strip())
    options = ServerOptions(
        tuple(local_roots(runs)), host, port, socket, tuple(trusted_host or ()), auth, control, names
    )
    server = open_server(options)
    token = server.tokens.control_path if control and server.tokens is not None else None

    def started() -> None:
        if json:
            facts = {"url": server.url, "port": server.port, "raters": server.raters}
            facts["control_token"] = None if token is None else str(token)
            sys.stdout.write(json_module.dumps(facts) + "\n")
            sys.stdout.flush()
        else:
            _print_addresses(
                server.url, server.raters, token, socket, options.port if server.port != options.port else None
            )
        if open_:
            webbrowser.open(server.url)

    try:
        serve(server, started)
    finally:
        if socket is not None:
            socket.unlink(missing_ok=True)


def _print_addresses(
    url: str, raters: dict[str, str], token: Path | None, socket: Path | None, busy_port: int | None
) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if busy_port:
        console.print(Text(f"Port {busy_port} is taken, so this is another one.", "dim"))
    if socket is not None:
        console.print(Text(f"Listening on {socket}. Forward it: ssh -L 8787:{socket} HOST"))
    console.print(Text.assemble("Open within ten minutes, once: ", (url, "bold")))
    for name, address in raters.items():
        console.print(Text(f"For {name}, to label: {address}"))
    if token is not None:
        console.print(Text(f"To act on runs, the page asks for the token in {token}"))
    console.print(Text("Ctrl-C ends it.", "dim"))
