"""Parquet files, by record batches."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.data.faults import Fault
from regard.data.lines import PACKED, reading, require_file
from regard.data.rows import FIRST, Columns, Rows, good_rows
from regard.errors import DataError, UserError

ROWS = 1 << 13  # of one batch
MAGIC = b"PAR1"  # how a Parquet file begins and ends


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """What goes wrong inside is told as a DataError."""
    refuse_others(path)
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError(f"{path}: Parquet files need pyarrow: pip install 'regard[data]'") from None
    try:
        with ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: a broken Parquet file: {str(error).partition(chr(10))[0]}") from None


def read_parquet(path: Path, columns: Columns) -> Iterator[Rows]:
    """A fault's line is the row's number, from 1."""
    with opened(path) as file:
        names = chosen(path, file.schema_arrow, columns)
        last = 0
        for batch in file.iter_batches(ROWS, columns=list(dict.fromkeys(names.values()))):
            numbers = range(last + 1, last + 1 + batch.num_rows)
            yield batch_rows(path, {name: batch.column(column) for name, column in names.items()}, numbers)
            last += batch.num_rows


def first_batch(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the first rows as text, with nothing in columns of other things."""
    with opened(path) as file:
        names = list(file.schema_arrow.names)
        texts = [name for name in dict.fromkeys(names) if holds_text(file.schema_arrow.field(name).type, label=True)]
        batch = next(file.iter_batches(FIRST, columns=texts), None) if len(set(names)) == len(names) and texts else None
        columns = {name: texts_of(batch.column(name))[0] for name in texts} if batch else {}
    rows = len(next(iter(columns.values()), []))
    return names, [list(row) for row in zip(*(columns.get(name, [""] * rows) for name in names), strict=True)]


def refuse_others(path: Path) -> None:
    if path.suffix in PACKED:
        raise DataError(f"{path}: a Parquet file cannot be read in parts while it is packed; unpack it")
    with reading(path):
        require_file(path)
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(max(path.stat().st_size - 4, 0))
            tail = file.read(4)
    if head != MAGIC:
        raise DataError(f"{path}: not a Parquet file: it does not begin with PAR1")
    if tail != MAGIC or path.stat().st_size < 12:
        raise DataError(f"{path}: a Parquet file that was cut short: it does not end with PAR1; copy it again")


def chosen(path: Path, schema: Any, columns: Columns) -> dict[str, str]:
    """The name in the file of each column; all hold text."""
    names = list(schema.names)
    told = f"the file has {', '.join(map(repr, names[:20])) or 'none'}"
    found: dict[str, str] = {}
    for name, column in columns.items():
        if isinstance(column, int) and not 0 <= column < len(names):
            raise DataError(f"{path}: no column {column}, counted from 0; {told}")
        found[name] = names[column] if isinstance(column, int) else str(column)
        if names.count(found[name]) != 1:
            raise DataError(f"{path}: {'two columns' if found[name] in names else 'no column'} {found[name]!r}; {told}")
        if not holds_text(kind := schema.field(found[name]).type, label=name != "source"):
            raise DataError(
                f"{path}: column {found[name]!r} holds {kind}, not text (the {name}); {told}: --column {name}=NAME says which"
            )
    return found


def holds_text(kind: Any, label: bool = False) -> bool:
    """Text, or lists of tokens; of what is written (labels, tags, targets) numbers too."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_list(kind) or types.is_large_list(kind):
        return holds_text(kind.value_type, label=True)
    if label and types.is_integer(kind):
        return True
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def batch_rows(path: Path, columns: dict[str, Any], numbers: range) -> Rows:
    bad: dict[int, Fault] = {}
    texts: dict[str, list[str]] = {}
    for name, array in columns.items():
        texts[name], problems = texts_of(array)
        for place, told in problems.items():
            bad.setdefault(numbers[place], Fault(path, numbers[place], f"the {name} is {told}"))
    return good_rows(dict.fromkeys(columns, path), texts, numbers, bad)


def texts_of(array: Any) -> tuple[list[str], dict[int, str]]:
    """What stands in each row; "" for what is no text, and why."""
    try:
        values = array.to_pylist()
    except UnicodeDecodeError:
        values = [text_or_error(value) for value in array]
    values = [as_text(value) for value in values]
    problems = {place: problem(value) for place, value in enumerate(values) if not isinstance(value, str)}
    return ["" if place in problems else value for place, value in enumerate(values)], problems


def as_text(value: Any) -> Any:
    """Tokens of a list separated by spaces, a number as its digits; what is no text stays."""
    if isinstance(value, list):
        wrong = [one for one in value if one is None or len(str(one).split()) != 1]
        return ValueError(f"a list with {wrong[0]!r:.40}, which is no token") if wrong else " ".join(map(str, value))
    return str(value) if isinstance(value, int) else value


def text_or_error(value: Any) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        return error


def problem(value: ValueError | None) -> str:
    if isinstance(value, UnicodeDecodeError):
        return f"not UTF-8: byte {value.object[value.start]:#04x} at byte {value.start + 1}"
    return "null" if value is None else str(value)
