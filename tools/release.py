"""Makes a release of the commit: sdist and wheel, the same bytes twice, checked in clean environments.

    python tools/release.py --begin 1.0.0     # writes the version where it stands; commit that
    make release                              # builds and checks; archives, hashes, notes, sbom.json in build/release
    git tag -a v1.0.0 -F build/release/notes.md

Nothing is uploaded. `--extras minilm,serve` checks only some of the extras.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "release"
NOT_CHECKED = ("test", "docs")
"""Extras of those who work on osbert; `make test` and `make docs` use them."""
README_EXTRAS = ("minilm", "serve")
PAGE_EXTRAS = (*README_EXTRAS, "onnx", "chinese")
"""Extras that the commands of the tutorials use."""
COMMANDS = {
    "chinese": "osbert corpus build zh.txt --tokenizer vocabulary --out corpus-zh --words rjieba --documents line",
    "minilm": "osbert embed minilm texts.txt --out vectors.npz",
    "onnx": "osbert export run --to onnx --out exported",
    "parquet": "osbert predict run --file rows.csv --out predicted.parquet",
    "xlsx": "osbert predict run --file rows.csv --out predicted.xlsx",
}
"""What is run, besides the imports, where a command of seconds uses an extra; `run` is the core's classifier."""
CORE_COMMANDS = (
    "osbert --version",
    "osbert --help",
    "osbert tokenizer train texts.txt --out vocabulary --vocabulary 200",
    "osbert corpus build texts.txt --tokenizer vocabulary --out corpus",
    "osbert pretrain bert-tiny --corpus corpus --out encoder --steps 5 --batch 4 --data.length 32",
    "osbert finetune classify --model encoder --data rows.csv --out run --epochs 1",
    "osbert predict run --file rows.csv --out predicted.csv",
)


def main() -> None:
    """Begin a version, or build and check the one that is committed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--begin", metavar="VERSION")
    parser.add_argument("--extras", help="extras to check, separated by commas (all)")
    arguments = parser.parse_args()
    if arguments.begin:
        begin(arguments.begin)
        return
    version = committed_version()
    notes = section_of_changelog(version)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    sdist, wheel = build_twice(version)
    (OUT / "notes.md").write_text(f"osbert {version}\n\n{notes}\n", encoding="utf-8")
    extras = arguments.extras.split(",") if arguments.extras else None
    check_environments(wheel, sdist, extras)
    write_hashes([sdist, wheel, OUT / "sbom.json", OUT / "notes.md"])
    folder = OUT.relative_to(ROOT)
    print(f"osbert {version} is in {folder}; to tag it: git tag -a v{version} -F {folder}/notes.md")


def begin(version: str) -> None:
    """Write a version and today's date where they stand."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise SystemExit(f"--begin {version}: a version has the form 1.0.0 or 1.0.0rc1")
    today = datetime.date.today().isoformat()
    replacements = [
        ("pyproject.toml", r'(?m)^version = ".*"$', f'version = "{version}"'),
        ("src/osbert/__init__.py", r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"'),
        ("CITATION.cff", r"(?m)^version: .*$", f"version: {version}"),
        ("CHANGELOG.md", r"(?m)^## \[Unreleased\]$", f"## [Unreleased]\n\n## [{version}] - {today}"),
    ]
    for name, pattern, replacement in replacements:
        path = ROOT / name
        text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"), count=1)
        if not count:
            raise SystemExit(f"{name} has no line that matches {pattern}")
        path.write_text(text, encoding="utf-8")
    names = ", ".join(name for name, _, _ in replacements)
    print(f"version {version} is in {names}; commit them, then run make release")


def committed_version() -> str:
    """Return the version of pyproject.toml; refuse uncommitted changes, since the commit is what is built."""
    changed = run("git", "status", "--porcelain", "--untracked-files=no", cwd=ROOT)
    if changed:
        raise SystemExit(f"commit these first, a release is made of a commit:\n{changed}")
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    lines = {"CITATION.cff": f"version: {version}", "src/osbert/__init__.py": f'__version__ = "{version}"'}
    for name, line in lines.items():
        if line not in (ROOT / name).read_text(encoding="utf-8").splitlines():
            raise SystemExit(f"{name} does not have the version of pyproject.toml, {version}; see --begin")
    return version


def section_of_changelog(version: str) -> str:
    """Return what CHANGELOG.md says of a version."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"(?ms)^## \[{re.escape(version)}\] - [0-9-]+\n(.*?)(?=^## \[|\Z)", changelog)
    if section is None:
        raise SystemExit(f"CHANGELOG.md has no section for {version}: python tools/release.py --begin {version}")
    return section[1].strip()


def build_twice(version: str) -> tuple[Path, Path]:
    """Build sdist and wheel of the commit in two folders; refuse bytes that differ."""
    epoch = run("git", "log", "-1", "--format=%ct", cwd=ROOT)
    builder = OUT / "builder"
    make_environment(builder)
    pip(builder, "install", "build", "cyclonedx-bom")
    built: list[dict[str, bytes]] = []
    for attempt in ("first", "second"):
        source = OUT / attempt / "source"
        source.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tracked:
            tracked.extractall(source, filter="data")
        environment = os.environ | {"SOURCE_DATE_EPOCH": epoch, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        run(str(builder / "bin" / "python"), "-m", "build", "--outdir", "..", ".", cwd=source, environment=environment)
        sdist = OUT / attempt / f"osbert-{version}.tar.gz"
        sdist.write_bytes(same_each_time(sdist.read_bytes(), int(epoch)))
        built.append({path.name: path.read_bytes() for path in sorted((OUT / attempt).glob("osbert-*"))})
    if built[0] != built[1]:
        raise SystemExit(f"the archives of two builds differ; they are kept in {OUT}/first and {OUT}/second")
    for name, content in built[0].items():
        (OUT / name).write_bytes(content)
    for attempt in ("first", "second"):
        shutil.rmtree(OUT / attempt)
    print(f"built twice, the same bytes: {', '.join(built[0])}")
    return OUT / f"osbert-{version}.tar.gz", OUT / f"osbert-{version}-py3-none-any.whl"


def same_each_time(sdist: bytes, epoch: int) -> bytes:
    """Return an sdist with the commit's time, no owner and a fixed order; setuptools writes the time of the build."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(sdist)) as original, tarfile.open(fileobj=plain, mode="w") as archive:
        for member in sorted(original.getmembers(), key=lambda member: member.name):
            member.mtime = epoch
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            archive.addfile(member, original.extractfile(member) if member.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=epoch)


def check_environments(wheel: Path, sdist: Path, extras: list[str] | None) -> None:
    """Install the wheel alone, then with each extra; run commands in each, and README's and the pages' with theirs."""
    core = OUT / "core"
    seconds = time.monotonic()
    make_environment(core)
    pip(core, "install", str(wheel))
    report = [("osbert", *measure(core, time.monotonic() - seconds))]
    work = OUT / "work"
    write_inputs(work)
    for command in CORE_COMMANDS:
        run_installed(core, command, work)
    run(str(OUT / "builder" / "bin" / "cyclonedx-py"), "environment", str(core / "bin" / "python"), "--of", "JSON",
        "--output-reproducible", "-o", str(OUT / "sbom.json"))  # fmt: skip
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    checked = extras if extras is not None else [name for name in declared if name not in NOT_CHECKED]
    if unknown := set(checked) - set(declared):
        raise SystemExit(f"--extras: pyproject.toml has no extra {', '.join(sorted(unknown))}")
    for name in checked:
        report.append((f"osbert[{name}]", *check_extra(core, name, declared[name], work)))
    readme, pages = OUT / "readme", OUT / "pages"
    for folder, names in ((readme, README_EXTRAS), (pages, PAGE_EXTRAS)):
        layer(core, folder)
        pip(folder, "install", *(requirement for name in names for requirement in declared[name]))
    for command in commands_of_readme():
        run_installed(readme, command, work)
    print("README's commands run from the wheel", flush=True)
    run_installed(pages, f"python {shlex.quote(str(ROOT / 'tools' / 'tutorials.py'))} --check", work)
    print("the tutorials show what their commands print, run from the wheel")
    from_source = OUT / "from-source"
    layer(core, from_source)
    pip(from_source, "install", "--no-deps", "--force-reinstall", str(sdist))
    run_installed(from_source, "osbert --version", work)
    lines = [f"{label:<22}{packages:>9}{size:>9.0f}{duration:>9.0f}" for label, packages, size, duration in report]
    table = "\n".join([f"{'':<22}{'packages':>9}{'MB':>9}{'seconds':>9}", *lines])
    (OUT / "installed.txt").write_text(table + "\n", encoding="utf-8")
    print(table)


def check_extra(core: Path, name: str, requirements: list[str], work: Path) -> tuple[int, float, float]:
    """Install an extra over the core's environment, import what it brings and run its command."""
    folder = OUT / f"extra-{name}"
    seconds = time.monotonic()
    layer(core, folder)
    pip(folder, "install", *requirements)
    duration = time.monotonic() - seconds
    distributions = [re.split(r"[<>=!\[; ]", requirement)[0] for requirement in requirements]
    script = (
        "import importlib, importlib.metadata, json, re, sys\n"
        "plain = lambda name: re.sub('[-_.]+', '-', name).lower()\n"
        "expected = {plain(name) for name in json.loads(sys.argv[1])}\n"
        "for module, names in importlib.metadata.packages_distributions().items():\n"
        "    if expected & {plain(name) for name in names} and not module.startswith('_') and module.isidentifier():\n"
        "        importlib.import_module(module)\n"
    )
    run(str(folder / "bin" / "python"), "-c", script, json.dumps(distributions), cwd=work)
    run_installed(folder, "osbert --version", work)
    if name in COMMANDS:
        run_installed(folder, COMMANDS[name], work)
    result = measure(folder, duration)
    print(f"osbert[{name}]: installed, imported" + (f", ran: {COMMANDS[name]}" if name in COMMANDS else ""), flush=True)
    shutil.rmtree(folder)
    return result


def commands_of_readme() -> list[str]:
    """Return the commands of README.md's blocks with outputs; the demo's by its verb, since make is not in a wheel."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"<!-- refresh[^>]* -->\n```console\n\$ (.*)\n", readme)
    return [command.replace("make demo", "osbert demo") for command in commands]


def write_inputs(work: Path) -> None:
    """Write the texts and rows that the commands read."""
    (work / "examples").mkdir(parents=True)
    shutil.copytree(ROOT / "examples" / "data", work / "examples" / "data")
    animals, things = ("cat", "dog", "owl"), ("tree", "house", "river", "road")
    sentences = [f"The {animal} sees a {thing}.\n" for animal in animals for thing in things]
    (work / "texts.txt").write_text("\n".join("".join(sentences) for _ in range(20)), encoding="utf-8")
    (work / "zh.txt").write_text("我们在北京学习自然语言处理。\n今天天气很好。\n" * 20, encoding="utf-8")
    rows = [f"{sentence.strip()},{'tree' if 'tree' in sentence else 'other'}\n" for sentence in sentences * 4]
    (work / "rows.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")


def make_environment(folder: Path) -> None:
    """Make an environment with pip."""
    venv.create(folder, with_pip=True)


def layer(core: Path, folder: Path) -> None:
    """Make an environment that sees the core's packages, so that torch is installed once."""
    make_environment(folder)
    Path(purelib(folder), "core.pth").write_text(f"{purelib(core)}\n", encoding="utf-8")
    for script in (core / "bin").glob("osbert*"):
        target = folder / "bin" / script.name
        target.write_text(script.read_text(encoding="utf-8").replace(str(core), str(folder)), encoding="utf-8")
        target.chmod(0o755)


def purelib(folder: Path) -> str:
    """Return the folder of an environment's packages."""
    return sysconfig.get_path("purelib", scheme="venv", vars={"base": str(folder)})


def measure(folder: Path, seconds: float) -> tuple[int, float, float]:
    """Return the number of packages in an environment itself, their megabytes and the seconds that installing took."""
    packages = Path(purelib(folder))
    count = sum(1 for path in packages.glob("*.dist-info") if not path.name.startswith(("pip-", "setuptools-")))
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file() and "pip" not in path.parts)
    return count, size / 1e6, seconds


def pip(folder: Path, *arguments: str) -> None:
    """Run an environment's pip."""
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    run(str(folder / "bin" / "python"), "-m", "pip", "-qq", *arguments, environment=environment)


def run_installed(folder: Path, command: str, work: Path) -> None:
    """Run a command with an environment's programs first."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{environment['PATH']}"
    run("bash", "-c", command, cwd=work, environment=environment)


def run(*command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Run a command and return its output; if it fails, end with what it printed."""
    result = subprocess.run(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    if result.returncode:
        raise SystemExit(f"`{' '.join(command)[:400]}` ended with {result.returncode}:\n{result.stdout[-4000:]}")
    return result.stdout.strip()


def write_hashes(paths: list[Path]) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (OUT / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
