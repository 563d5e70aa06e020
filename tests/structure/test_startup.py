"""Importing osbert and asking for help are quick: no torch, and no work at import."""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from osbert.console.verbs import verb_packages

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "osbert"
HEAVY = ("torch", "scipy", "sklearn", "transformers", "pyarrow")
WITHOUT_TORCH = (
    "errors", "recipe", "components", "remote", "text", "reading", "corpus", "data.example", "data.pack", "data.pairs",
    "data.corrupt", "objectives", "tasks", "files", "lock", "cli",
)  # fmt: skip
"""Rooms and modules that load no torch; of commands/, the verbs' own files do not, since help must be quick."""
HELP_SECONDS = 0.7


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_importing_osbert_loads_nothing_heavy_and_prints_nothing() -> None:
    heavy = (*HEAVY, "osbert_lab.object_stores.addresses")
    out = python(f"import sys, osbert; print([name for name in {heavy} if name in sys.modules])")
    assert out == "[]\n"


def test_the_torch_free_side_loads_no_torch() -> None:
    names = []
    for promised in WITHOUT_TORCH:
        if importlib.util.find_spec(f"osbert.{promised}") is None:
            continue
        names.append(f"osbert.{promised}")
        folder = PACKAGE / promised
        names += [f"osbert.{promised}.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__"]
    names += [package.module(name) for package in verb_packages() for name in package.names()]
    guilty = []
    while name := first_with_torch([name for name in names if name not in guilty]):
        guilty.append(name)
    assert not guilty, f"these import torch at module level, against their promise: {guilty}"


def test_the_settings_of_verbs_are_known_without_torch() -> None:
    """So `osbert finetune sst2 --help` is quick. Only the settings of a family besides the default one load torch."""
    assert (
        python(
            "import sys; sys.modules['torch'] = None\n"
            "from osbert import components, recipe\n"
            "from osbert.commands import finetune, pretrain\n"
            "from osbert_lab.commands import reproduce\n"
            "from osbert_lab.papers.tables import table_names\n"
            "for task in components.names('tasks'): finetune.settings_of([task])\n"
            "for name in recipe.recipe_names(): pretrain.schemas_shown([name])\n"
            "for name in table_names(): reproduce.schemas_shown([name])\n"
            "print('known')"
        )
        == "known\n"
    )


def test_the_server_beside_its_workers_loads_no_torch() -> None:
    """It takes 0.2 GB and a second, and workers alone run models."""
    script = "import sys; sys.modules['torch'] = None\nimport osbert.server.http\nprint('known')"
    assert python(script) == "known\n"


def test_a_step_of_training_loads_only_what_it_needs() -> None:
    """Each of these takes about as long to import as torch does, and a model is opened by nearly every command."""
    slow = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor")
    assert (
        python(
            "import sys, torch\n"
            "from osbert.models.architecture import Architecture\n"
            "from osbert.training import trainer\n"
            "from osbert.training.optimizer import OptimizerSettings, limit\n"
            "sizes = dict(layers=1, heads=2, width=16, feedforward=16, vocabulary=20, length=8)\n"
            "model = Architecture(**sizes).build()\n"
            "for method in 'adamw', 'muon':\n"
            "    optimizer = OptimizerSettings(method=method).build(model)\n"
            "    sum(weight.square().sum() for weight in model.parameters()).backward()\n"
            "    limit([*model.parameters()], 1.0)\n"
            "    optimizer.step()\n"
            "    optimizer.zero_grad()\n"
            "    optimizer.load_state_dict(optimizer.state_dict())\n"
            f"print([name for name in {slow} if name in sys.modules])"
        )
        == "[]\n"
    )


def first_with_torch(names: list[str]) -> str:
    """Import modules in their order; return the first with which torch comes in, "" when none does."""
    return python(
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules: print(name); break\n"
    ).strip()


@pytest.mark.parametrize(("words", "most"), [(["--help"], HELP_SECONDS), (["finetune", "--help"], 1.0)])
def test_help_answers_quickly(words: list[str], most: float) -> None:
    """CPU seconds of the whole process, the best of two: other work on the machine does not count."""
    seconds = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run([sys.executable, "-m", "osbert", *words], capture_output=True, text=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run.returncode == 0
        assert "encoder" in run.stdout
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(seconds) < most
