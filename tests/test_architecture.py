"""Who may import whom, what a command loads, and what the documents must name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomllib
from data_sets import make_set

ROOT = Path(__file__).parents[1]
PACKAGES = ("launcher", "pricing", "remote")
HEAVY = ("torch", "torchvision", "boto3", "botocore", "google", "paramiko", "fabric", "moto", "asyncssh", "sklearn")
SDKS = {"boto3", "botocore", "google"}
LONGEST = 400


@dataclass(frozen=True)
class Import:
    """One imported module, and whether it is imported when the file is (not inside a function or for typing)."""

    module: str
    at_once: bool


def sources(*packages: str) -> list[Path]:
    """Every source file of these packages or modules."""
    found: list[Path] = []
    for package in packages:
        path = ROOT / package.replace(".", "/")
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return [path for path in found if "__pycache__" not in path.parts]


def name_of(path: Path) -> str:
    """Dotted name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sources(*PACKAGES)}


def imports(path: Path) -> list[Import]:
    """Everything that a file imports; names of modules inside a package count as that module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return list(_imports(tree, at_once=True))


def _imports(node: ast.AST, *, at_once: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, at_once) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield Import(inner if inner in MODULES else str(child.module), at_once)
        else:
            late = isinstance(child, ast.FunctionDef | ast.Lambda) or _is_for_typing(child)
            yield from _imports(child, at_once=at_once and not late)


def _is_for_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def within(module: str, *packages: str) -> bool:
    """Whether a module is one of these, or inside of one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def strangers(path: Path, *allowed: str) -> set[str]:
    """What a file imports beyond the standard library and `allowed`."""
    return {
        found.module
        for found in imports(path)
        if found.module.split(".")[0] not in sys.stdlib_module_names and not within(found.module, *allowed)
    }


def users_of(*modules: str, among: tuple[str, ...] = PACKAGES) -> set[str]:
    """Names of the modules that import one of these, anywhere in the file."""
    return {name_of(path) for path in sources(*among) if any(within(found.module, *modules) for found in imports(path))}


def each(*packages: str):
    """Parametrizes a test by source file."""
    return pytest.mark.parametrize("path", sources(*packages), ids=lambda path: str(path.relative_to(ROOT)))


@each("pricing")
def test_pricing_knows_neither_the_launcher_nor_the_machine(path):
    assert strangers(path, "pricing") == set(), "the standard library and itself, nothing else"


def test_the_core_of_pricing_does_not_read_tables():
    core = [path for path in sources("pricing") if not within(name_of(path), "pricing.sources", "pricing.data")]
    readers = {name_of(p) for p in core if any(within(i.module, "pricing.sources") for i in imports(p))}
    assert readers == set()


@each("launcher")
def test_the_launcher_knows_the_protocol_and_the_data_set_of_the_machines_side_and_nothing_else(path):
    of_remote = {found.module for found in imports(path) if within(found.module, "remote")}
    allowed = {module for module in of_remote if within(module, "remote.protocol", "remote.dataset")}
    packs = {"remote"} if name_of(path) == "launcher.bundle" else set()
    assert of_remote - allowed - packs == set()


@each("remote")
def test_the_machines_side_knows_neither_of_the_others(path):
    assert not [found.module for found in imports(path) if within(found.module, "launcher", "pricing")]


@each("remote.agent", "remote.protocol", "remote.names", "remote.records", "remote.clock")
def test_agent_and_protocol_need_the_standard_library_alone(path):
    """They run on the machine's own interpreter, whatever is installed for it."""
    assert strangers(path, "remote.agent", "remote.protocol", "remote.names", "remote.records", "remote.clock") == set()


@each("remote.dataset", "remote.transfer")
def test_data_set_and_transfer_need_no_torch(path):
    assert not [found.module for found in imports(path) if within(found.module, "torch", "remote.yolov9")]


@pytest.mark.parametrize(
    "chain",
    [
        ("boxes", "assigner", "loss", "engine", "train"),
        ("blocks", "model", "engine", "train"),
        ("augment", "data", "engine", "train"),
    ],
    ids="-".join,
)
def test_the_trainer_is_imported_in_one_direction(chain):
    for place, lower in enumerate(chain):
        known = {found.module for found in imports(MODULES[f"remote.yolov9.{lower}"])}
        assert not known & {f"remote.yolov9.{higher}" for higher in chain[place + 1 :]}, lower


LAYERS = (
    ("launcher.cli",),
    ("launcher.app",),
    ("launcher.wiring", "launcher.embedded", "launcher.estimating", "launcher.history"),
    ("launcher.drive",),
    ("launcher.steps",),
    ("launcher.services", "launcher.machine"),
    ("launcher.providers.interface", "launcher.storage.interface", "launcher.ssh"),
    ("launcher.events", "launcher.run", "launcher.recovery", "launcher.limits"),
)
"""From the user down. `wiring` is beside the chain: it is reached from above and hands adapters down."""


def test_the_launcher_is_imported_from_the_command_line_down():
    for place, layer in enumerate(LAYERS):
        higher = [module for above in LAYERS[:place] for module in above]
        for path in sources("launcher"):
            if within(name_of(path), *layer):
                climbs = {found.module for found in imports(path) if within(found.module, *higher)}
                assert climbs == set(), f"{name_of(path)} imports upwards"


def test_only_the_wiring_knows_which_adapter_stands_behind_a_port():
    users = {name for name in users_of("launcher.providers.aws") if not within(name, "launcher.providers.aws")}
    assert users == {"launcher.wiring", "launcher.sweep.wiring", "launcher.storage.s3"}
    assert users_of("launcher.storage.s3") == {"launcher.wiring", "launcher.sweep.wiring"}


def test_the_embedded_cloud_is_reached_from_four_places_and_knows_nothing_of_runs():
    outside = {name for name in users_of("launcher.sandbox") if not within(name, "launcher.sandbox")}
    assert outside <= {"launcher.wiring", "launcher.sweep.wiring", "launcher.embedded", "launcher.cli.sandbox"}
    for path in sources("launcher.sandbox"):
        known = {found.module for found in imports(path) if within(found.module, *PACKAGES)}
        assert {m for m in known if not within(m, "launcher.sandbox", "launcher.errors")} <= {"launcher"}, name_of(path)


def test_vendors_stop_at_their_adapters():
    outside = {name for name in users_of(*SDKS, among=("launcher",)) if not within(name, "launcher.sandbox")}
    assert {name for name in outside if not within(name, "launcher.providers.aws")} <= {
        "launcher.storage.s3",
        "launcher.wiring",
    }
    assert {name for name in users_of("paramiko", "fabric", "invoke") if not within(name, "launcher.sandbox")} == {
        "launcher.ssh"
    }
    assert users_of("click", "rich") == {name for name in MODULES if within(name, "launcher.cli")} & users_of("click")


@pytest.mark.parametrize(
    "name", ["run", "events", "recovery", "limits", "planning", "units", "render", "sweep.render", "sweep.verdicts"]
)
def test_the_core_does_no_input_or_output(name):
    doing = {"os", "io", "pathlib", "socket", "subprocess", "time", "shutil", "tempfile", "urllib", "random", "secrets"}
    assert not {found.module.split(".")[0] for found in imports(MODULES[f"launcher.{name}"])} & doing


def test_the_time_is_told_in_one_place():
    tellers = {name for name in users_of("time", among=("launcher",)) if not within(name, "launcher.sandbox")}
    assert tellers == {"launcher.clock"}
    asking = re.compile(r"datetime\.now\(|datetime\.utcnow\(|date\.today\(")
    found = {
        name
        for name, path in MODULES.items()
        if asking.search(path.read_text(encoding="utf-8")) and not within(name, "launcher.sandbox")
    }
    assert found == {"launcher.clock"}


def test_every_package_is_installed():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    there = {name_of(path) for path in sources(*PACKAGES) if path.name == "__init__.py"}
    assert set(listed) - {"launcher.templates"} == there


def test_templates_are_opened_in_one_place():
    found = {name for name, path in MODULES.items() if "launcher.templates" in path.read_text(encoding="utf-8")}
    assert found == {"launcher.templating"}


def test_no_two_modules_import_each_other_at_once():
    graph = {
        name: {i.module for i in imports(path) if i.at_once and i.module in MODULES} for name, path in MODULES.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"a circle: {' -> '.join((*trail, name))}"
        if name not in done:
            for module in sorted(graph[name]):
                visit(module, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@each(*PACKAGES)
def test_no_file_is_too_long_to_be_read_at_once(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@each(*PACKAGES)
def test_every_file_says_what_it_owns(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not tree.body or ast.get_docstring(tree), "a module starts with what it owns and must not know"


# -- what a command loads ----------------------------------------------------------------------------------------------

RUN = """
import sys
sys.argv = ["gpucost", *sys.argv[1:]]
from launcher.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
print("\\nMODULES", *sorted(sys.modules))
sys.exit(code)
"""


def loaded(*argv: str, folder: Path) -> tuple[int, str, set[str]]:
    """Exit code, output, and the top-level packages that a command has loaded at its end."""
    environment = {"PATH": "/usr/bin:/bin", "GPUCOST_HOME": str(folder / "home"), "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *argv],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    text, _, modules = done.stdout.rpartition("\nMODULES ")
    assert modules, done.stderr
    return done.returncode, text + done.stderr, {module.split(".")[0] for module in modules.split()}


def test_the_command_line_is_imported_without_anything_heavy(tmp_path):
    code = "import sys, launcher.cli; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    names = {module.split(".")[0] for module in done.stdout.split()}
    assert not names & {*HEAVY, "pydantic", "yaml", "PIL", "numpy"}


@pytest.mark.parametrize("argv", ["--help", "--version", "train --help", "sandbox --help"])
def test_help_loads_nothing_heavy(tmp_path, argv):
    code, text, names = loaded(*argv.split(), folder=tmp_path)
    assert code == 0, text
    assert not names & set(HEAVY)


@pytest.mark.parametrize("argv", ["ls", "ls --json", "report", "report --csv costs.csv"])
def test_what_is_known_here_is_told_without_sdks(tmp_path, argv):
    """U02: an answer from local state takes no time."""
    code, text, names = loaded(*argv.split(), folder=tmp_path)
    assert code == 0, text
    assert not names & set(HEAVY)


def test_an_estimate_needs_neither_torch_nor_an_sdk_nor_ssh(tmp_path):
    make_set(tmp_path / "pictures")
    (tmp_path / "job.yaml").write_text("name: job\ndata: ./pictures\nepochs: 3\nbudget: 5\n")
    code, text, names = loaded("estimate", "job.yaml", folder=tmp_path)
    assert code == 0, text
    assert "chosen:" in text
    assert not names & set(HEAVY)


# -- what the documents must name --------------------------------------------------------------------------------------

README = ROOT / "README.md"
needs_readme = pytest.mark.skipif(not README.exists(), reason="README.md is not written yet")


def commands() -> list[str]:
    from launcher.cli import COMMANDS

    return list(COMMANDS)


@pytest.mark.parametrize("name", commands())
def test_every_command_explains_itself(name, tmp_path):
    from click.testing import CliRunner

    from launcher.cli import COMMANDS, cli

    answer = CliRunner().invoke(cli, [name, "--help"])
    assert answer.exit_code == 0
    body = answer.output.split("Options:")[0].strip().splitlines()
    assert len(body) > 1, "one sentence about what it does"
    assert COMMANDS[name][1].endswith(".")


def test_every_option_explains_itself():
    import click

    from launcher.cli import cli

    context = click.Context(cli)
    groups = [cli.get_command(context, name) for name in commands()]
    leaves = [inner for group in groups for inner in getattr(group, "commands", {"": group}).values()]
    silent = [
        f"{leaf.name} {option.opts[0]}"
        for leaf in leaves
        for option in leaf.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert silent == []


@needs_readme
@pytest.mark.parametrize("name", commands())
def test_every_command_is_named_in_the_readme(name):
    texts = README.read_text(encoding="utf-8") + (ROOT / "launcher" / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"`{name}[ `]", texts)


@needs_readme
def test_what_happens_when_something_breaks_is_shown_by_tests_that_exist():
    table = README.read_text(encoding="utf-8").split("## What happens when ...")[1].split("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ") and not row.startswith(("| when", "| ---"))]
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert all(re.search(rf"^def {name}\(", written, re.MULTILINE) for name in named), row
    assert len(rows) > 10


@needs_readme
def test_every_exit_code_is_documented():
    from launcher.errors import ExitCode

    rows = re.findall(r"^\| (\d+) \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(map(int, rows)) == sorted(code.value for code in ExitCode)


@needs_readme
def test_every_key_of_a_job_is_documented():
    from launcher.jobspec import JobSpec

    reference = (ROOT / "launcher" / "README.md").read_text(encoding="utf-8")
    missing = [name for name in JobSpec.model_fields if not re.search(rf"`{name}`|^{name}:", reference, re.MULTILINE)]
    assert missing == []


@needs_readme
def test_the_columns_of_the_ledger_are_documented():
    from launcher.accounts import COLUMNS

    reference = (ROOT / "launcher" / "README.md").read_text(encoding="utf-8")
    assert ", ".join(COLUMNS) in " ".join(reference.split())


@needs_readme
def test_the_table_of_states_is_documented():
    from launcher.run import TRANSITIONS

    reference = (ROOT / "launcher" / "README.md").read_text(encoding="utf-8")
    rows = {row.split("|")[1].strip(): row for row in reference.splitlines() if row.startswith("| ")}
    for (state, kind), target in TRANSITIONS.items():
        own = rows[state.value]
        common = ("each of these", "each but settled")
        said = next((row for row in (own, *map(rows.get, common)) if f"`{kind.__name__}`" in row), own)
        assert f"`{kind.__name__}`" in said, (state, kind)
        assert target.value in said or "stay" in said, (state, kind)
