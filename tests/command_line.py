"""The command line in this process: a process of its own costs two CPU seconds, most of them imports."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from tiltmeter.cli import main


def tiltmeter(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What `tiltmeter` with these arguments prints and returns, as `subprocess.run` would give it."""
    command = ["tiltmeter", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    with patch.object(sys, "argv", command), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int), code
    said = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(command, code, *said)
