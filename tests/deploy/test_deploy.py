"""The files of deploy/ and .github/ are what their readers accept, and name what there is."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMAS = {
    ".github/dependabot.yml": "vendor.dependabot",
    ".github/workflows/checks.yml": "vendor.github-workflows",
    ".github/workflows/release.yml": "vendor.github-workflows",
    "deploy/compose.yaml": "vendor.compose-spec",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name):
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[name], str(ROOT / name)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_kubernetes():
    validate = pytest.importorskip("kubernetes_validate")
    yaml = pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/serve.yaml").read_text(encoding="utf-8")))
    for document in documents:
        validate.validate(document, validate.latest_version(), strict=True)
    assert [document["kind"] for document in documents] == ["Deployment", "Service", "PodDisruptionBudget"]


def served_arguments(text: str) -> list[str]:
    return re.findall(r"--[a-z][a-z-]+", text)


def test_options_exist():
    help_text = subprocess.run(
        [sys.executable, "-m", "osbert", "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    dockerfile = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    [entry] = re.findall(r"(?m)^ENTRYPOINT (.*)$", dockerfile)
    texts = [" ".join(json.loads(entry))]
    texts += re.findall(r"(?:command|args): (\[.*\])", (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))[:1]
    texts += re.findall(r"args: (\[.*\])", (ROOT / "deploy/kubernetes/serve.yaml").read_text(encoding="utf-8"))
    texts += re.findall(r"ExecStart=(.*)", (ROOT / "deploy/osbert.service").read_text(encoding="utf-8"))
    options = [option for text in texts for option in served_arguments(text)]
    assert len(options) >= 6 and all(option in help_text for option in options)


def test_extras_of_images_exist():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in ("Dockerfile", "train.Dockerfile"):
        [extras] = re.findall(r"/source\[(.*?)\]", (ROOT / "deploy" / name).read_text(encoding="utf-8"))
        assert all(re.search(rf"(?m)^{extra} = \[", project) for extra in extras.split(","))
