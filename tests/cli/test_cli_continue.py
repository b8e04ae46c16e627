"""`regard continue`: from a prompt or from lines, drawn or searched for, word by word."""

import pytest
import tasks
from calling import refused, regard

import regard as package
from regard import run
from regard.decoding.sampling import Sampling
from regard.recipe import Recipe, override, parse


@pytest.fixture(scope="module", params=["recurrent_texts", "long_texts", "window_texts"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    files = tasks.write(folder, request.param)
    run.train(parse(Recipe, tasks.recipe(request.param, files, updates=20, validate_every=20)), folder / "run", talk=False)
    return str(folder / "run"), package.load(folder / "run")


def test_one_text_streams_the_same_as_it_is_drawn(trained):
    folder, model = trained
    for options, sampling in (
        (("--seed", "3"), Sampling(seed=3)),
        (("--top-k", "2", "--temperature", "0.5"), Sampling(top_k=2, temperature=0.5)),
    ):
        code, out, err = regard("continue", folder, "a b", "--length", "9", *options)
        assert (code, err) == (0, "")
        (found,) = model.continue_("a b", 1, sampling, max_length=9)
        assert out == f"a b{found.text}\n"


def test_several_texts_have_a_line_or_more_each_and_their_scores(trained):
    folder, model = trained
    found = model.continue_("a", 3, max_length=6)
    code, out, _ = regard("continue", folder, "a", "--number", "3", "--length", "6", "--scores")
    assert code == 0
    assert out == "".join(f"{one.log_prob:.6f}\ta{one.text}\n" for one in found)
    code, out, _ = regard("continue", folder, "--length", "6", "--number", "2", stdin=b"a\nb c\n")
    assert out == "".join(f"{text}{one.text}\n" for text in ("a", "b c") for one in model.continue_(text, 2, max_length=6))


def test_searches_find_the_most_probable(trained):
    folder, model = trained
    ((greedy,), wide) = (
        model.continue_("b", 1, search=True, max_length=5, beam=1),
        model.continue_("b", 4, search=True, max_length=5, length_penalty=0.0),
    )
    assert regard("continue", folder, "b", "--greedy", "--length", "5").out == f"b{greedy.text}\n"
    assert wide[0].log_prob >= greedy.log_prob - 1e-6
    assert [one.log_prob for one in wide] == sorted((one.log_prob for one in wide), reverse=True)
    drawn = model.continue_("b", 300, max_length=5)
    assert (
        max(one.log_prob for one in drawn)
        <= model.continue_("b", 1, search=True, max_length=5, beam=64, length_penalty=0.0)[0].log_prob + 1e-5
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--greedy", "--seed", "1"), "--seed says how texts are drawn: leave out --greedy and --beam"),
        (("--beam", "2", "--top-p", "0.5"), "--top-p says how texts are drawn"),
        (("--greedy", "--number", "2"), "--greedy writes one text"),
        (("--top-p", "2"), "top_p"),
    ],
)
def test_what_does_not_go_together_is_refused(trained, options, told):
    code, out, err = regard("continue", trained[0], "a", *options)
    assert (code, out) == (2, "")
    assert told in err


def test_a_long_text_goes_on_over_its_lines(trained):
    _, model = trained
    many = [one.text for one in model.continue_("a b\nc", 20, max_length=12)]
    assert any("\n" in text for text in many) == (model.model.window is not None)
    if model.lines_go_on:
        assert all(
            len(one.tokens) == min(12, (model.model.room or 99) - len(model.prompt("a b\nc")))
            for one in model.continue_("a b\nc", 3, max_length=12)
        )
        assert (
            model.prompt("a b\nc")
            == [*model.target.encode(["a b"])[0], 3, *model.target.encode(["c"])[0]][-(model.model.room or 99) // 2 :]
        )


def test_an_empty_prompt_begins_a_text(trained):
    folder, model = trained
    for prompt in ("", "  "):
        (found,) = model.continue_(prompt, 1, max_length=6)
        assert regard("continue", folder, prompt, "--length", "6").out == f"{prompt}{found.text}\n"
    assert regard("continue", folder, "--length", "6", stdin=b"") == (0, "", "")
    texts = [model.continue_(line, 1, max_length=6)[0].text for line in ("", "a")]
    assert regard("continue", folder, "--length", "6", stdin=b"\na\n").out == f"{texts[0]}\na{texts[1]}\n"


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """There are places for a few words only."""
    folder = tmp_path_factory.mktemp("short")
    values = tasks.recipe("recurrent_texts", tasks.write(folder, "recurrent_texts"), updates=2, validate_every=2)
    sizes = "hidden_size: 8, feedforward_size: 8, layers: 1, attention: {heads: 2}"
    decoder = f"model.decoder={{kind: transformer, {sizes}, positions: learned, longest: 8}}"
    run.train(parse(Recipe, override(values, [decoder])), folder / "run", talk=False)
    return folder / "run"


@pytest.mark.parametrize("options", [[], ["--scores"], ["--greedy"]])
def test_a_prompt_that_is_too_long_fails_alone(short, options):
    code, out, err = regard("continue", short, *options, stdin=b"a\n" + b"b " * 9 + b"\nc\n")
    assert (code, out.count("\n"), out.split("\n")[1]) == (2, 3, "")
    assert err.startswith("error: <stdin>:2: too long: the target has 10 tokens with its start mark")
    assert err.endswith("; its output is empty\n")
    assert refused("continue", short, "b " * 9, *options).startswith("the prompt: too long: the target has 10 tokens")


def test_a_line_that_is_no_text_fails_alone(short, monkeypatch):
    monkeypatch.setattr("regard.data.lines.LONGEST", 9)
    code, out, err = regard("continue", short, stdin=b"a\n" + b"b " * 9 + b"\nc\n")
    assert (code, out.count("\n"), out.split("\n")[1]) == (2, 3, "")
    assert err.startswith("error: <stdin>:2: longer than 0 MB")
