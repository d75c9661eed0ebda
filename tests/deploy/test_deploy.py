"""What is in `deploy/`: linters accept it, and Fingerpost accepts the settings it gives."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fingerpost.settings import Loaded, load
from tests.kit.programs import ROOT
from tests.requirements import proves

FOLDER = ROOT / "deploy"
SECRET = "0123456789abcdef" * 4


def read_settings(folder: Path, environment: Mapping[str, str]) -> Loaded:
    return load(environ={"HOME": str(folder), **environment}, cwd=folder)


def run(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.process
@proves("M3")
def test_the_dockerfile_has_no_findings() -> None:
    assert run(str(Path(sys.executable).with_name("hadolint")), str(ROOT / "Dockerfile")) == (0, "")


@proves("M3")
def test_compose_gives_valid_settings_from_the_example_environment(tmp_path: Path) -> None:
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    example = (FOLDER / "environment.example").read_text(encoding="utf-8")
    names = re.findall(r"^(\w+)=", example, re.MULTILINE)
    assert set(re.findall(r"\$\{(\w+):\?\}", text)) == set(names)
    given = {
        "PUBLIC_HOST": "tools.example.com",
        "POSTGRES_PASSWORD": "pw",
        "FINGERPOST_STORE__SECRET": SECRET,
    }
    for name in names:
        text = text.replace(f"${{{name}:?}}", given[name])
    services = yaml.safe_load(text)["services"]
    settings = read_settings(tmp_path, services["fingerpost"]["environment"]).settings
    assert settings.store.url == "postgresql://fingerpost:pw@db/fingerpost"
    assert settings.store.secret == SECRET
    assert settings.gateway.public_url == "https://tools.example.com"
    caddy = (FOLDER / "Caddyfile").read_text(encoding="utf-8")
    assert f"reverse_proxy fingerpost:{settings.gateway.port}" in caddy


@pytest.mark.process
@proves("M3")
def test_kubernetes_accepts_the_manifests() -> None:
    command = str(Path(sys.executable).with_name("kubernetes-validate"))
    code, output = run(command, "--strict", str(FOLDER / "kubernetes.yaml"))
    assert code == 0, output


@proves("M3")
def test_the_manifests_give_valid_settings_and_probe_the_port_of_the_gateway(tmp_path: Path) -> None:
    text = (FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")
    parts: dict[str, Any] = {part["kind"]: part for part in yaml.safe_load_all(text)}
    for name, content in parts["ConfigMap"]["data"].items():
        (tmp_path / "fingerpost").mkdir(exist_ok=True)
        (tmp_path / "fingerpost" / name).write_text(content, encoding="utf-8")
    assert parts["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}  # see how-to/deploy/backup.md
    pod = parts["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    secrets = {"store-url": "postgresql://fingerpost@db/fingerpost", "store-secret": SECRET}
    environment = {
        one["name"]: one.get("value") or secrets[one["valueFrom"]["secretKeyRef"]["key"]]
        for one in container["env"]
    }
    assert environment.pop("XDG_CONFIG_HOME") == "/config"
    loaded = read_settings(tmp_path, {**environment, "XDG_CONFIG_HOME": str(tmp_path)})
    assert loaded.settings.store.url == secrets["store-url"]
    assert (loaded.settings.gateway.host, loaded.specs) == ("0.0.0.0", ())
    assert container["ports"] == [{"name": "http", "containerPort": loaded.settings.gateway.port}]
    assert {
        container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "readiness", "liveness")
    } == {"http"}


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@proves("M3")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (FOLDER / "fingerpost.service").read_text(encoding="utf-8")
    unit = tmp_path / "fingerpost.service"
    program = str(Path(sys.executable).with_name("fingerpost"))
    unit.write_text(text.replace("/opt/fingerpost/bin/fingerpost", program), encoding="utf-8")
    assert run("systemd-analyze", "verify", "--man=no", str(unit)) == (0, "")
