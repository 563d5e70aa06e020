"""Does the steps of a Dockerfile in a clean root, where there is no docker: RUN by chroot, and what COPY and ENV say.

    sudo python tools/container_steps.py deploy/Dockerfile ROOT --python python3.13 --arg TORCH_INDEX=...
    sudo chroot --userspec 10001 ROOT /opt/osbert/bin/osbert --version

ROOT is a folder with a Debian and its Python in the place of the image that FROM names, such as debootstrap makes.
Stages share the one root, so COPY --from only checks that its source is there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments, continued lines joined."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, arguments.strip()) for name, _, arguments in (line.partition(" ") for line in joined.splitlines())]


def pairs(arguments: str) -> dict[str, str]:
    """Return NAME=VALUE pairs."""
    return dict(re.findall(r"(\w+)=(\S*)", arguments))


def copy(arguments: str, root: Path) -> None:
    """Copy files of the checkout into the root; of another stage, look whether they are there."""
    *sources, target = arguments.split()
    if sources[0].startswith("--from="):
        if not (root / sources[1].lstrip("/")).exists():
            raise SystemExit(f"COPY {arguments}: the stage before did not make {sources[1]}")
        return
    for name in sources:
        into = root / target.lstrip("/")
        if (SOURCE / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(SOURCE / name, into, dirs_exist_ok=True, ignore=ignored)
        else:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, into)


def main() -> None:
    """Do the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dockerfile", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("--python", default="python3", help="the program that stands for python")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the build")
    options = parser.parse_args()
    python = options.root / "usr" / "local" / "bin" / "python"
    python.unlink(missing_ok=True)
    python.symlink_to(f"/usr/bin/{options.python}")
    given = pairs(" ".join(options.arg))
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "HOME": "/root"}
    user, folder = "0", "/"
    for name, arguments in instructions(options.dockerfile.read_text(encoding="utf-8")):
        print(f"{name} {arguments}", flush=True)
        if name == "ARG":
            environment |= pairs(arguments) | {key: given[key] for key in pairs(arguments) if key in given}
        elif name == "ENV":
            environment |= {key: value.replace("$PATH", environment["PATH"]) for key, value in pairs(arguments).items()}
        elif name == "FROM":
            user, folder = "0", "/"
        elif name == "USER":
            user = arguments
        elif name == "WORKDIR":
            folder = arguments
            (options.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            copy(arguments, options.root)
        elif name == "RUN":
            command = ["chroot", f"--userspec={user}", str(options.root), "sh", "-ec", f"cd {folder}; {arguments}"]
            subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
