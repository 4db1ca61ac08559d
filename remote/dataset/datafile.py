"""data.yaml: text to class names and split entries, with the line of everything said. Looks at no picture or folder.

Works on YAML's nodes instead of built values: names stay the text that was written (`no`, `0` and `1.50` are names),
nothing in the file is ever constructed, and each message has a line.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from remote.dataset.files import read_regular
from remote.dataset.values import DatasetError, Note, NoteKind, Split

KNOWN = ("path", "train", "val", "test", "nc", "names")
SILENT = ("roboflow",)
"""Blocks that a tool adds about itself: ignored without a word."""
LARGEST = 4 << 20
NULL_TAG = "tag:yaml.org,2002:null"
EXAMPLE = "train: images/train, val: images/val and names: [first, second]"


@dataclass(frozen=True, slots=True)
class Entry:
    """One path that data.yaml gives."""

    key: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """What data.yaml says, before anything is looked for."""

    file: Path
    names: tuple[str, ...]
    path: Entry | None
    """The `path` key: where the entries start from."""
    splits: dict[Split, tuple[Entry, ...]]
    """Train and val have entries; test has none where there is no such key."""
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class _Field:
    """A top-level key and its value."""

    line: int
    node: yaml.Node


def read_data_file(file: Path) -> DataFile:
    """Read and check a data.yaml. Raises DatasetError with file and line."""
    fields, notes = _fields(file, _text(file))
    names = _names(file, fields, notes)
    _check_class_count(file, fields, names)
    splits = {split: _entries(file, fields, split.value) for split in Split}
    for split in (Split.TRAIN, Split.VAL):
        if not splits[split]:
            raise _missing_split(file, fields, split)
    _note_ignored(file, fields, notes)
    path = _entries(file, fields, "path")
    return DataFile(file, names, path[0] if path else None, splits, tuple(notes))


def data_file_text(names: Sequence[str], splits: Sequence[Split]) -> str:
    """The text of a data.yaml in the standard layout: pictures in `images/SPLIT`, labels in `labels/SPLIT`."""
    places = {split.value: f"images/{split.value}" for split in splits}
    content = {**places, "nc": len(names), "names": dict(enumerate(names))}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _text(file: Path) -> str:
    try:
        data = read_regular(file)
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}", "give the folder of a data.yaml, or the file itself") from error
    if len(data) > LARGEST:
        raise DatasetError(f"{file}: {len(data)} bytes are too many for a data.yaml", f"it should hold {EXAMPLE}")
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{data[error.start]:02X}" if error.start < len(data) else "its end"
        raise DatasetError(
            f"{file}:{line}: this file is not UTF-8 ({byte})", "open it in an editor and save it as UTF-8"
        ) from error


def _fields(file: Path, text: str) -> tuple[dict[str, _Field], list[Note]]:
    root = _compose(file, text)
    if not isinstance(root, yaml.MappingNode):
        line = 1 if root is None else root.start_mark.line + 1
        raise DatasetError(f"{file}:{line}: is not a data.yaml: no `key: value` lines", f"write {EXAMPLE}")
    fields: dict[str, _Field] = {}
    notes: list[Note] = []
    for key_node, node in root.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key in fields:
            notes.append(_twice(file, key, fields[key], _Field(line, node)))
        else:
            fields[key] = _Field(line, node)
    return fields, notes


def _compose(file: Path, text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _yaml_fault(file, line, text, error.problem or "not YAML") from error
    except yaml.YAMLError as error:
        raise DatasetError(f"{file}: is not YAML: {error}", "save it again as plain text in UTF-8") from error
    except RecursionError as error:
        raise DatasetError(f"{file}: is nested too deeply", f"a data.yaml needs {EXAMPLE}") from error


def _yaml_fault(file: Path, line: int, text: str, problem: str) -> DatasetError:
    lines = text.splitlines()
    for number in (line, line - 1, line + 1):  # the parser may notice a line late
        if 1 <= number <= len(lines) and "\t" in _indentation(lines[number - 1]):
            return DatasetError(f"{file}:{number}: a tab at the start of the line", "indent with spaces, not with tabs")
    return DatasetError(f"{file}:{line}: is not YAML: {problem}", "check the colons, quotes and indentation there")


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _twice(file: Path, key: str, first: _Field, second: _Field) -> Note:
    lines = f"lines {first.line} and {second.line}"
    if yaml.serialize(first.node) != yaml.serialize(second.node):
        raise DatasetError(f"{file}:{second.line}: `{key}` is given twice, on {lines}, with two values", "keep one")
    return Note(NoteKind.DATA_FILE, f"`{key}` is given twice, on {lines}, with the same value", file, second.line)


def _is_empty(node: yaml.Node) -> bool:
    return node.tag == NULL_TAG or node.value in ("", [])


def _names(file: Path, fields: dict[str, _Field], notes: list[Note]) -> tuple[str, ...]:
    if "names" not in fields:
        raise DatasetError(f"{file}: `names` is missing: what are the classes called?", _wish("names", fields))
    line, node = fields["names"].line, fields["names"].node
    if _is_empty(node):
        raise _empty_names(file, fields)
    if isinstance(node, yaml.ScalarNode):
        notes.append(Note(NoteKind.DATA_FILE, f"`names` is one text: read as one class, {node.value!r}", file, line))
        names = [str(node.value)]
    elif isinstance(node, yaml.MappingNode):
        names = _numbered_names(file, node)
    else:
        names = [_name(file, item) for item in node.value]
    double = sorted({name for name in names if names.count(name) > 1}) if len(names) < 10_000 else []
    if double:
        notes.append(Note(NoteKind.DATA_FILE, f"`names` has {double[0]!r} more than once", file, line))
    return tuple(names)


def _name(file: Path, node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or _is_empty(node):
        raise DatasetError(f"{file}:{node.start_mark.line + 1}: a class name is empty or a list", "give it one text")
    return str(node.value)


def _numbered_names(file: Path, node: yaml.MappingNode) -> list[str]:
    names: dict[int, str] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        try:
            number = int(str(key.value))
        except ValueError:
            hint = "write `0: name`, `1: name` and so on"
            raise DatasetError(f"{file}:{line}: {key.value!r} under `names` is not a class number", hint) from None
        name = _name(file, value)
        if names.setdefault(number, name) != name:
            raise DatasetError(f"{file}:{line}: class {number} has two names", "keep one")
    missing = next((number for number in range(len(names)) if number not in names), None)
    if missing is not None:
        line = node.start_mark.line + 1
        hint = f"{len(names)} names are numbered 0 to {len(names) - 1}" + ("; numbered from 1?" if missing == 0 else "")
        raise DatasetError(f"{file}:{line}: `names` has no class {missing}", hint)
    return [names[number] for number in range(len(names))]


def _empty_names(file: Path, fields: dict[str, _Field]) -> DatasetError:
    stray = [(key, field) for key, field in fields.items() if key.isdecimal()]
    line = fields["names"].line
    if not stray:
        return DatasetError(f"{file}:{line}: `names` is empty", _wish("names", fields))
    key, field = stray[0]
    text = f"`names` is empty; the lines `{key}: ...` under it (from line {field.line} on) are not indented"
    return DatasetError(f"{file}:{line}: {text}", "put two spaces before each of them")


def _check_class_count(file: Path, fields: dict[str, _Field], names: tuple[str, ...]) -> None:
    if "nc" not in fields or _is_empty(fields["nc"].node):
        return
    given, line = str(fields["nc"].node.value).strip(), fields["nc"].line
    if given != str(len(names)):
        some = "1 name is" if len(names) == 1 else f"{len(names)} names are"
        hint = f"write `nc: {len(names)}`, drop the line, or complete `names`"
        raise DatasetError(f"{file}:{line}: `nc` is {given} but {some} given", hint)


def _entries(file: Path, fields: dict[str, _Field], key: str) -> tuple[Entry, ...]:
    if key not in fields or _is_empty(fields[key].node):
        return ()
    node = fields[key].node
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    wrong = next((item for item in items if not isinstance(item, yaml.ScalarNode) or _is_empty(item)), None)
    if wrong is not None or (key == "path" and len(items) > 1):
        line = (wrong or node).start_mark.line + 1
        form = "one folder" if key == "path" else "a folder, a list of folders, or a .txt list of pictures"
        raise DatasetError(f"{file}:{line}: `{key}` should be {form}", f"write `{key}: ` and a path")
    return tuple(Entry(key, str(item.value).strip(), item.start_mark.line + 1) for item in items)


def _missing_split(file: Path, fields: dict[str, _Field], split: Split) -> DatasetError:
    key = split.value
    if key in fields:
        return DatasetError(f"{file}:{fields[key].line}: `{key}` is empty", f"write the folder: `{key}: images/{key}`")
    return DatasetError(f"{file}: `{key}` is missing", _wish(key, fields))


def _wish(key: str, fields: dict[str, _Field]) -> str:
    near = difflib.get_close_matches(key, [name for name in fields if name not in KNOWN], n=1, cutoff=0.6)
    example = "names: [first, second]" if key == "names" else f"{key}: images/{key}"
    hint = f"add a line such as `{example}`"
    if near:
        hint += f"; did you mean `{key}` by `{near[0]}` (line {fields[near[0]].line})?"
    if key == "val":
        hint += "; use pictures that are not in train, some 10 to 20 percent of all"
        hint += "; `test` is not used in its place" if "test" in fields else ""
    return hint


def _note_ignored(file: Path, fields: dict[str, _Field], notes: list[Note]) -> None:
    if "download" in fields:
        text = "`download` is ignored: nothing is fetched or run because of a data.yaml"
        notes.append(Note(NoteKind.DATA_FILE, text, file, fields["download"].line))
    unknown = [key for key in fields if key not in (*KNOWN, *SILENT, "download")]
    if unknown:
        listed = ", ".join(f"`{key}`" for key in unknown[:8]) + (" and more" if len(unknown) > 8 else "")
        notes.append(Note(NoteKind.DATA_FILE, f"unknown keys ignored: {listed}", file, fields[unknown[0]].line))
