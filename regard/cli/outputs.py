"""What is printed for one line: its text, numbers beside it, a list of the best, or an object."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from regard.data.tokenizers import Tokenizer
    from regard.decoding.hypothesis import Hypothesis

LINE_ENDS = {ord(end): " " for end in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}  # wherever `str.splitlines` cuts


def one_line(text: str) -> str:
    """Each character that some reader takes for the end of a line becomes a space."""
    return text.translate(LINE_ENDS).encode("utf-8", errors="replace").decode("utf-8")


class Form(NamedTuple):
    """What somebody asked to see of an output."""

    n_best: int | None = None
    scores: bool = False
    token_scores: bool = False
    moses: bool = False  # the best N with the features that Moses' tools read
    details: bool = False  # of an object: everything

    def line(self, number: int, hypotheses: Sequence["Hypothesis"], failed: bool = False) -> str:
        """An empty line has no hypotheses: its output is empty, and certain; one that failed has the score of what cannot
        be."""
        if self.n_best is not None:
            columns = [self.listed(one) for one in hypotheses[: self.n_best]] or [["", f"{nothing(failed):.6f}"]]
            return "".join(f"{' ||| '.join([str(number), *column])}\n" for column in columns)
        best = hypotheses[0] if hypotheses else None
        text, score = ("", nothing(failed)) if best is None else (one_line(best.text), best.score)
        each = " ".join(f"{score:.6f}" for score in (best.token_scores if best else None) or ())
        columns = [[f"{score:.6f}"] if self.scores else [], [text], [each] if self.token_scores else []]
        return "\t".join(cell for column in columns for cell in column) + "\n"

    def listed(self, one: "Hypothesis") -> list[str]:
        """Its columns. `LogProb=` is log p, `Length=` counts the end mark where there is one: what the score is made of."""
        length = len(one.tokens) + (not one.cut)
        features = [f"LogProb= {one.log_prob:.6f} Length= {length}"] if self.moses else []
        return [one_line(one.text), *features, f"{one.score:.6f}"]

    def json(
        self, row: dict[str, Any], hypotheses: Sequence["Hypothesis"] | None, problem: str | None, target: "Tokenizer"
    ) -> str:
        """The object with its `output`; null and the `error` where there is none. The output of an empty text is empty."""
        from regard.data.jsonl import json_line

        if problem is not None:
            return json_line({**row, "output": None, **({"score": None} if self.scores else {}), "error": problem})
        outputs = [{"output": one.text, **self.facts(one, target)} for one in hypotheses or ()]
        best = outputs[0] if outputs else {"output": "", **({"score": 0.0} if self.scores or self.details else {})}
        if self.n_best is None:
            return json_line({**row, **best})
        listed = [
            {"output": one.text, "score": round(one.score, 6), **self.facts(one, target)} for one in hypotheses or ()
        ] or [{"output": "", "score": 0.0}]
        return json_line({**row, **best, "n_best": listed[: self.n_best]})

    def facts(self, one: "Hypothesis", target: "Tokenizer") -> dict[str, Any]:
        """What was asked for, by name."""
        found: dict[str, Any] = {"score": round(one.score, 6)} if self.scores or self.details else {}
        if self.details:
            found |= {"log_prob": round(one.log_prob, 6), "end": one.end}
        if one.token_scores is not None:
            found |= {"tokens": target.pieces(one.tokens), "token_scores": [round(score, 6) for score in one.token_scores]}
        if self.details and one.alignment is not None:
            found["alignment"] = pharaoh(one)
        return found


def nothing(failed: bool) -> float:
    return float("-inf") if failed else 0.0


def pharaoh(one: "Hypothesis | None") -> str:
    """Its words linked to those of the source, i-j."""
    from regard.data.links import format_links

    return "" if one is None or one.alignment is None else format_links(one.alignment.links)
