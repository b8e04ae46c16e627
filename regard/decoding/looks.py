"""Where a model that writes looked: in a text, or in a picture."""

from collections.abc import Sequence

from regard.decoding.forcing import TeacherForced
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.reading import WORDS
from regard.errors import UserError
from regard.insight.look import Candidate, Look
from regard.insight.maps import View, view
from regard.insight.panels import Panels, PictureLook


def look_at_text(
    trained: TeacherForced, text: str, output: str, found: Sequence[Hypothesis], tokens: bool | None, maps: bool
) -> Look:
    """For each word of the output; `found` is what the search that wrote it found."""
    for name, given in {"text": text, "output": output}.items():
        if not given.strip() and (trained.has_attention or name == "text"):
            raise UserError(f"there is nothing to look at: the {name} is empty")
    sides, candidates = trained.sides_of(text, output) if tokens is None else (tokens, tokens), candidates_of(found)
    if not maps:
        return Look(text, output, trained.heatmap(trained.align((text, output), tokens=sides)), candidates=candidates)
    every, chances = trained.looked(text, output, sides, len(found))
    if not trained.has_attention:
        return Look(text, output, view(every, View()).heatmap, every, chances, candidates)
    return Look(text, output, trained.heatmap(trained.align((text, output), tokens=sides)), every, chances, candidates)


def look_at_picture(
    trained: TeacherForced, name: str, output: str, found: Sequence[Hypothesis], tokens: bool | None, maps: bool
) -> PictureLook:
    """The same of an image: one panel for each word, the attention laid over what the model read."""
    regions, (images, problems) = trained.model.regions, trained.encoded("source", [name])
    if problems:
        raise UserError(problems[0])
    aligned = trained.align((name, output))
    if not aligned.target:
        raise UserError(f"there is nothing to look at: the model writes nothing for {name}")
    heatmap = trained.heatmap(aligned)
    weights = aligned.weights.reshape(-1, regions.rows, regions.columns)
    panels = Panels(images[0][0], aligned.target, weights, heatmap.title)
    every, chances = trained.looked(name, output, WORDS, len(found)) if maps else ([], [])
    return PictureLook(name, output, heatmap, every, chances, candidates_of(found), panels=panels)


def candidates_of(found: Sequence[Hypothesis]) -> list[Candidate]:
    return [Candidate(one.text, one.log_prob) for one in found]
