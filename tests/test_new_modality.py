"""A new modality is one class in FIELDS and one in INPUTS: `bits`, a text of 0 and 1 that is read as vectors of eight, comes
from a file, is trained with, saved, loaded and used."""

import pytest
import tasks
from calling import refused
from calling import regard as command
from own_parts import as_in_a_new_process

import regard
from regard.data.fields import FIELDS
from regard.errors import UserError
from regard.imports import use
from regard.models.inputs import INPUTS
from regard.recipe import to_yaml

FILE = """
from typing import Literal

import numpy as np
from torch import nn

from regard.data.fields import FIELDS, Field, FieldFitter, Shape
from regard.models.inputs import INPUTS, Input
from regard.recipe import Section


class BitsConfig(Section):
    kind: Literal["bits"] = "bits"
    width: int = 8  # of each vector


class Bits(Field, FieldFitter):
    kind, form, Config = "bits", "plain", BitsConfig

    def __init__(self, width):
        self.features = (width,)

    @classmethod
    def fitter(cls, config):
        return cls(config.width)  # there is nothing to learn

    def add(self, values, column):
        pass

    def finish(self):
        return self

    @classmethod
    def outline(cls, config):
        return Shape("bits", (config.width,))

    @property
    def shape(self):
        return Shape("bits", self.features)

    def encode(self, values):
        width = self.features[0]
        wrong = {row: f"{value!r:.40} is not {width} bits, or twice as many, or ..." for row, value in enumerate(values)
                 if set(value) - set("01") or not value or len(value) % width}
        return [np.zeros((1, width), np.float32) if row in wrong else np.array(list(value), np.float32).reshape(-1, width)
                for row, value in enumerate(values)], wrong

    def facts(self):
        return {"width": self.features[0]}

    @classmethod
    def restore(cls, facts):
        return cls(facts["width"])


class SignsConfig(Section):
    kind: Literal["signs"] = "signs"


class Signs(nn.Module):
    '''0 and 1 as -1 and 1, projected.'''

    def __init__(self, config, shape, size, table):
        super().__init__()
        self.project = nn.Linear(shape.sizes[0], size)

    def forward(self, values):
        return self.project(2 * values - 1)


FIELDS["bits"] = Bits
INPUTS["signs"] = Input(SignsConfig, ("bits",), Signs)
"""


def bits(row):
    return "".join(f"{ord(word):08b}" for word in row)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    sources = tasks.write_lines(tmp_path / "source.txt", map(bits, tasks.ROWS))
    return {"source": sources, "target": tasks.write_lines(tmp_path / "target.txt", tasks.texts())}


def write_recipe(folder, files, **fields):
    from regard.recipe import Recipe, parse

    values = tasks.recipe("vectors", files)
    values["data"]["fields"] = {"source": {"kind": "bits", **fields}}
    with as_in_a_new_process():
        use(str(folder / "mine.py"))
        (folder / "bits.yaml").write_text(to_yaml(parse(Recipe, values)))
    return folder / "bits.yaml"


def test_a_new_modality_is_one_class_in_each_of_two_tables(files, tmp_path):
    made, mine = write_recipe(tmp_path, files), tmp_path / "mine.py"
    assert "bits" not in FIELDS
    assert "signs" not in INPUTS
    assert "unknown field in data.fields.source.kind 'bits'" in refused("train", made, "--run", tmp_path / "run")
    with as_in_a_new_process():
        assert command("train", made, "--import", mine, "--run", tmp_path / "run", "--quiet") == (0, "", "")
        model = regard.load(tmp_path / "run")
        assert type(model.fields["source"]).__name__ == "Bits"
        assert type(model.model.encoder.embed).__name__ == "Signs"
        assert model.generate([bits(row) for row in tasks.ROWS]) == tasks.texts()
        lines = f"{bits(['a', 'b', 'c'])}\n01\n{bits(['c'])}\n".encode()
        code, out, err = command("generate", tmp_path / "run", stdin=lines)
        assert (code, out) == (2, "a b c\n\nc\n")
        assert "error: <stdin>:2: '01' is not 8 bits" in err
    with pytest.raises(UserError, match=r"mine\.py"):
        regard.load(tmp_path / "run")


def test_what_its_field_cannot_read_is_told_with_its_line(files, tmp_path):
    tasks.write_lines(files["source"], [*map(bits, tasks.ROWS[:2]), "0110", *map(bits, tasks.ROWS[3:])])
    made = write_recipe(tmp_path, files)
    with as_in_a_new_process():
        told = refused("train", made, "--import", tmp_path / "mine.py", "--run", tmp_path / "run")
    assert f"{files['source']}:3: '0110' is not 8 bits" in told
