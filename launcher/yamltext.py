"""YAML text to plain values, whatever the text: a value or one BadInput with the line. Knows nothing of jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from launcher.errors import BadInput

MOST_BYTES = 1 << 20
_UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)
"""What the constructors raise on values that look like a number or date and are none, or that a tag forces to be."""
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """`yaml.safe_load` that refuses a key given twice, since one of the two would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the base class; raises MarkedYAMLError for a repeated key."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node.value, str):
                continue  # a list or mapping as a key: the base class says so
            if key_node.value in seen:
                raise _fault(f"the key {key_node.value[:80]!r} is given twice", key_node)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401 - any value is one
        """As the base class; raises MarkedYAMLError for a value that cannot be made."""
        try:
            return super().construct_object(node, deep)
        except _UNREADABLE as error:
            kind = node.tag.rsplit(":", 1)[-1]
            raise _fault(f"{str(node.value)[:80]!r} is no {kind} (in quotes it is a text)", node) from error


def _without_base_60() -> None:
    """YAML 1.1 reads 1:20 as 80; nobody means that."""
    plain = {
        _INT: r"^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$",
        _FLOAT: r"^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
    }
    _Loader.yaml_implicit_resolvers = {
        first: [(tag, re.compile(plain[tag]) if tag in plain else pattern) for tag, pattern in rules]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_without_base_60()


def read(path: Path, text: str) -> object:
    """The value of a YAML text. Raises BadInput naming `path`, and the line where there is one."""
    if len(text.encode()) > MOST_BYTES:
        raise BadInput(f"{path} is too large: more than {MOST_BYTES >> 20} MiB", hint="name the YAML file of a job")
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader with more checks
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else "?"
        raise BadInput(f"{path} line {line} is not valid YAML: {error.problem}", hint="correct that line") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is not valid YAML: {error}", hint="save it as plain text") from error
    except RecursionError as error:
        raise BadInput(f"{path} is not valid YAML: nested too deeply", hint="close the brackets") from error
    except _UNREADABLE as error:
        raise BadInput(f"{path} is not valid YAML: a value in it cannot be read", hint="correct it") from error


def _fault(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
