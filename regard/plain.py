"""Plain values from YAML and JSON text that nobody vouches for: small, shallow, every key once, nothing but data."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

CHARACTERS = 64_000  # of a text; the longest recipe of ours has a twentieth
VALUES = 10_000  # of a text, each use of an alias counted again: a few aliases of aliases are millions of values
DEPTH = 50
DIGITS = 400  # of a number
TAG = "tag:yaml.org,2002:"


class Composer(yaml.SafeLoader):
    """YAML text -> nodes, none of them deep. A date stays the text it is written as."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the class above has it
        first: [(tag, pattern) for tag, pattern in ways if tag != f"{TAG}timestamp"]
        for first, ways in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > DEPTH:
            raise problem(f"nested more than {DEPTH} levels deep", self.peek_event())  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def problem(what: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=at.start_mark)


def reason(error: yaml.YAMLError) -> str:
    """What a YAMLError complains of, in one line."""
    return str(getattr(error, "problem", None) or error).partition("\n")[0]


def from_yaml(text: str) -> Any:
    """The values, or a YAMLError that says what is wrong and in which line."""
    if len(text) > CHARACTERS:
        raise yaml.YAMLError(f"longer than {CHARACTERS:,} characters")
    composer = Composer(text)
    try:
        node = composer.get_single_node()
    except (ValueError, OverflowError) as error:  # "\\U00110000": no such letter
        raise yaml.YAMLError(str(error)) from None
    finally:
        composer.dispose()
    return None if node is None else Builder().build(node)


class Builder:
    """Nodes -> values; aliases are followed one by one, so that what they come to is counted."""

    def __init__(self) -> None:
        self.values = self.depth = 0

    def build(self, node: Any) -> Any:
        self.values += 1
        self.depth += 1
        if self.values > VALUES:
            raise problem(f"more than {VALUES:,} values, aliases followed", node)
        if self.depth > DEPTH:
            raise problem(f"nested more than {DEPTH} levels deep, aliases followed", node)
        kind = node.tag.removeprefix(TAG)
        if KINDS.get(kind) is not type(node):
            raise problem(f"a recipe has no values of the kind {node.tag!r}", node)
        build: Any = getattr(self, f"build_{kind}", self.build_scalar)
        value = build(node)
        self.depth -= 1
        return value

    def build_map(self, node: yaml.MappingNode) -> dict[str, Any]:
        """Every key once; what `<<` brings lies under it."""
        under, own, lines = dict[str, Any](), dict[str, Any](), dict[str, int]()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise problem("a key is a word, not a list or a mapping", key)
            if key.value in lines:
                raise problem(f"the key {key.value!r} stands there twice: it is in line {lines[key.value]} too", key)
            lines[key.value] = key.start_mark.line + 1
            if key.tag == f"{TAG}merge":
                under = self.merged(value)
            else:
                own[key.value] = self.build(value)
        return {**under, **own}

    def merged(self, node: yaml.Node) -> dict[str, Any]:
        """Of a list of mappings the first counts most."""
        found = self.build(node)
        mappings = found if isinstance(found, list) else [found]
        if not all(isinstance(one, dict) for one in mappings):
            raise problem("`<<` takes a mapping or a list of mappings", node)
        return {key: value for one in reversed(mappings) for key, value in one.items()}

    def build_seq(self, node: yaml.SequenceNode) -> list[Any]:
        return [self.build(one) for one in node.value]

    def build_str(self, node: yaml.ScalarNode) -> str:
        text: str = node.value
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise problem("half of a surrogate pair is no text", node)
        return text

    def build_scalar(self, node: yaml.ScalarNode) -> Any:
        """A number, a truth value or null."""
        kind = node.tag.removeprefix(TAG)
        try:
            if len(node.value) > DIGITS:
                raise ValueError("too long")
            return getattr(yaml.constructor.SafeConstructor(), f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            raise problem(f"{node.value[:40]!r} is no {kind}", node) from None


KINDS: dict[str, type[yaml.Node]] = {
    "map": yaml.MappingNode, "seq": yaml.SequenceNode,
    **dict.fromkeys(("str", "int", "float", "bool", "null"), yaml.ScalarNode),
}  # fmt: skip


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(..., object_pairs_hook=unique)`: a mapping, or a ValueError that names the key that is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.80} stands there twice")
    return found


def widest(value: object) -> int:
    """The largest whole number in a section: models of one paper differ in their sizes first of all."""
    if isinstance(value, Mapping | list):
        return max((widest(one) for one in (value.values() if isinstance(value, Mapping) else value)), default=0)
    return value if isinstance(value, int) else 0
