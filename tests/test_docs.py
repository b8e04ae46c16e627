"""Every bash and python block of the documents is executed, in order, in one empty folder a document; a python block may use
what those before it have made."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.insight.heatmap import Heatmap
from regard.insight.page import html

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```\n(<!-- not run: .+ -->)?", re.MULTILINE | re.DOTALL)
SHORT = {"gallery.md"}  # what takes minutes there is run for two updates, and experiments in their setting `smoke`
FEW = "training.updates=2 training.warmup=1 training.validate_every=2 training.save_every=1"
PRINTS = re.compile(r"# prints: (.+)$", re.MULTILINE)


def printed(code, output):
    """Of the lines that a block says it prints, those that it does print, as whole lines."""
    return [line for line in PRINTS.findall(code) if line in output.splitlines()]


def shortened(code):
    """The same commands with less work."""
    lines = code.replace("\\\n", " ").replace(" --quick", " --setting smoke").splitlines()
    return "\n".join(f"{line} {less(line)}" if line.startswith("regard train ") else line for line in lines)


def less(command):
    return FEW if "--source" in command else f"{FEW} data.corpus.size=60 decoding.max_length=8"


def blocks(document):
    """Of a document; python blocks that follow each other are run as one."""
    found = []
    for kind, code, excuse in BLOCK.findall(document.read_text(encoding="utf-8")):
        if kind == "python" and not excuse and found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + code)
        elif not excuse:
            found.append((kind, shortened(code) if document.name in SHORT else code))
    return found


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A folder with a `regard` that has imported torch already; documents call it a hundred times, `regard -c` for python."""
    folder, script = tmp_path_factory.mktemp("bin"), Path(__file__).with_name("warm_regard.py")
    door = folder / "door"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen([sys.executable, script, "serve", door], env=environment, start_new_session=True)
    (folder / "regard").write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{script}" call "{door}" "$@"\n')
    (folder / "regard").chmod(0o755)
    (folder / "torchrun").symlink_to(Path(__file__).with_name("warm_torchrun.sh"))
    while not door.exists():
        assert server.poll() is None
        time.sleep(0.1)
    yield folder
    server.kill()
    server.wait()


def run(kind, code, folder, warm):
    path = f"{warm}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    command = ["bash", "-euo", "pipefail", "-c", code] if kind == "bash" else [warm / "regard", "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_shows_runs(document, tmp_path, warm):
    said = ""
    for kind, code in blocks(document):
        said += code if kind == "python" else ""
        done = run(kind, said if kind == "python" else code, tmp_path, warm)
        assert done.returncode == 0, f"{document.name}:\n{code}\n{done.stdout}\n{done.stderr}"
        assert PRINTS.findall(said if kind == "python" else code) == printed(code if kind == "bash" else said, done.stdout)


GALLERY = ROOT / "docs" / "gallery"


def test_the_gallery_shows_every_picture_and_says_what_made_it():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[.+?\]\(gallery/(.+?)\)", text)
    assert sorted(shown) == sorted(path.name for path in GALLERY.iterdir())
    assert all(path.stat().st_size < 100_000 for path in GALLERY.iterdir())
    commands = " ".join(code for _, code, _ in BLOCK.findall(text))
    lab = {"neuron.png": "runs/neurons", **{f"{name}.png": f"runs/{name}" for name in ("gradients", "positions", "complexity")}}
    assert all(lab.get(name, name) in commands for name in shown)


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium: apt-get install chromium")
def test_the_page_of_the_gallery_is_photographed(tmp_path):
    html(Heatmap(["a"], ["b"], np.ones((1, 1))), tmp_path / "look.html")
    (code,) = re.findall(
        r"^```bash\n(chromium .*?)^```", (ROOT / "docs" / "gallery.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    subprocess.run(["bash", "-euc", code], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    light, dark = (np.asarray(Image.open(tmp_path / f"page-{name}.png").convert("L")).mean() for name in ("light", "dark"))
    assert light > 200
    assert dark < 60


def test_the_readme_has_its_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in text
        assert f"\n{command}: " in makefile


def test_links_between_documents_lead_somewhere():
    for document in [*DOCUMENTS, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        prose = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
            assert target.startswith("http") or (document.parent / target).exists(), f"{document.name} -> {target}"


def test_the_page_of_recipes_names_every_recipe():
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [path.stem for path in (ROOT / "regard" / "recipes").glob("*.yaml") if f"`{path.stem}`" not in text] == []


def test_the_architecture_names_every_table_and_every_room():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tables = set()
    for path in (ROOT / "regard").rglob("*.py"):
        tables |= set(re.findall(r"^([A-Z]+)(?:: dict.*)? = \{", path.read_text(encoding="utf-8"), re.MULTILINE))
    shown = {
        "CELLS",
        "SCORES",
        "CONTEXTS",
        "ENCODERS",
        "DECODERS",
        "TOKENIZERS",
        "READERS",
        "CORPORA",
        "SCHEDULES",
        "METRICS",
        "FORMATS",
        "TASKS",
        "PATHS",
        "CONNECTIONS",
        "SCOPES",
        "SELECTIONS",
        "COPIES",
        "PENALTIES",
        "ACTIVATIONS",
        "SYMMETRISATIONS",
        "SETTINGS",
        "POSITIONS",
        "NORMS",
        "FEEDFORWARDS",
        "MODELS",
        "RISKS",
        "SOURCES",
        "RULES",
        "SEARCHES",
        "NORMALISATIONS",
        "FIELDS",
        "INPUTS",
        "POOLINGS",
        "FITS",
        "AUGMENTATIONS",
        "BODIES",
        "CHOICES",
        "REMARKS",
        "SPACE",
        "EXPERIMENTS",
    }
    assert shown - {"CORPORA"} <= tables | {"CORPORA"}
    assert all(f"`{name}`" in text for name in shown)
    rooms = [path.name for path in (ROOT / "regard").iterdir() if path.is_dir() and not path.name.startswith("__")]
    assert all(f"  {room}/" in text for room in rooms)


def test_the_keys_of_the_page_for_newcomers_are_keys():
    """Each is accepted by a recipe, of whichever shape has it."""
    from regard.errors import UserError
    from regard.models import configure
    from regard.preflight import check_names
    from regard.recipe import read

    def problem(key, name):
        try:
            recipe = read(name, ["data.train.source=a", "data.train.target=b", key])
            check_names(recipe)
            configure(recipe.model)
        except UserError as error:
            return str(error)
        return None

    text = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
    keys = re.findall(r"`((?:data|model|training|decoding)\.[a-z_.]+=[^`]+)`", text)
    assert len(keys) > 50
    wrong = {key: problem(key, "bahdanau2015-small") for key in keys if problem(key, "vaswani2017-small")}
    assert {key: told for key, told in wrong.items() if told} == {}
