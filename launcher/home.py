"""Where gpucost keeps things on the user's machine: the single owner of those names.

`GPUCOST_HOME` overrides; else the XDG state directory (`XDG_STATE_HOME`, `~/.local/state`).
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import BadInput
from launcher.journal import Journal
from remote import protocol
from remote.protocol import AgentStatus, ProtocolError

AWAY = "set GPUCOST_HOME to a folder that can be written"


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory."""

    root: Path

    @property
    def runs(self) -> Path:
        """One folder for each run."""
        return self.root / "runs"

    def run(self, run_id: str) -> RunFolder:
        """The folder of one run, whether or not it exists."""
        return RunFolder(self.runs / run_id)

    def run_ids(self) -> list[str]:
        """Ids of all runs known here, oldest first (an id begins with its time)."""
        if not self.runs.is_dir():
            return []
        return sorted(path.parent.name for path in self.runs.glob("*/journal.jsonl"))

    def place(self) -> str:
        """A random name for this state directory: launchers of one place see each other's locks.

        It says on which host and in which file it was made: a copy of the directory, here or elsewhere, is another
        place, and gets another name when it is first asked for.
        """
        path = self.root / "place"
        try:
            with path.open(encoding="utf-8") as found:
                name, *of = found.read().split()
                if of == _original(found.fileno()):
                    return name
        except (FileNotFoundError, ValueError):
            pass
        return _new_place(path)

    @contextmanager
    def opening(self, name: str) -> Iterator[None]:
        """Hold the right to begin a run called `name` here; another process waits until the block ends."""
        folder = self.root / "names"
        folder.mkdir(exist_ok=True)
        with (folder / f"{name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def find(self, reference: str | None) -> str:
        """The id for what a user typed: an id, a unique beginning, a name (its newest run), or nothing (the newest).

        Raises BadInput that lists what there is.
        """
        ids = self.run_ids()
        if not ids:
            raise BadInput("there is no run here yet", hint="start one: gpucost train job.yaml")
        if reference is None:
            return ids[-1]
        if reference in ids:
            return reference
        matching = [run_id for run_id in ids if run_id.startswith(reference)] or [
            run_id for run_id in ids if name_in(run_id) == reference
        ][-1:]
        if len(matching) == 1:
            return matching[0]
        found = "several runs begin with" if matching else "no run is called"
        raise BadInput(f"{found} {reference!r}", hint="`gpucost ls` lists them; the newest is " + ids[-1])


def _new_place(path: Path) -> str:
    name = secrets.token_hex(8)
    temporary = path.with_name(f".{path.name}.{name}")
    with temporary.open("x", encoding="utf-8") as out:
        out.write(" ".join([name, *_original(out.fileno())]))
    temporary.replace(path)
    return name


def _original(handle: int) -> list[str]:
    """What a copy of an open file does not have in common with it."""
    return [platform.node() or "-", str(os.fstat(handle).st_ino)]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Every file name of a run on the user's machine."""

    root: Path

    @property
    def journal(self) -> Journal:
        """The truth about the run."""
        return Journal(self.root / "journal.jsonl")

    @property
    def private_key(self) -> Path:
        """The key pair made for this run alone (0600)."""
        return self.root / "ssh_key"

    @property
    def status(self) -> Path:
        """The last agent status that was seen, so that `gpucost status` answers without the network."""
        return self.root / "status.json"

    def keep_status(self, status: AgentStatus) -> None:
        """Remember what the agent said last."""
        protocol.write(self.status, status)

    def last_status(self) -> AgentStatus | None:
        """What the agent said last, if anything that can be read."""
        try:
            return protocol.read(self.status, AgentStatus)
        except (OSError, ProtocolError):
            return None

    @property
    def log(self) -> Path:
        """The trainers' output as far as it was fetched."""
        return self.root / "train.log"

    @property
    def adopted(self) -> Path:
        """Names the results folder of a run that was begun on another machine; else not there."""
        return self.root / "results"

    def results_dir(self, asked: str) -> str:
        """Where the results go here, for a run that was begun with `asked`."""
        try:
            return self.adopted.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return asked

    @property
    def supervisor_log(self) -> Path:
        """What a detached launcher said."""
        return self.root / "supervisor.log"

    @property
    def scratch(self) -> Path:
        """Room for archives on their way to the storage."""
        return self.root / "scratch"


def name_in(run_id: str) -> str:
    """The job's name in a run id (`TIME-RANDOM-NAME`)."""
    return run_id.split("-", 2)[-1]


def find_home(environment: Mapping[str, str]) -> Home:
    """The state directory that `environment` asks for. Raises BadInput when it cannot be made."""
    named = environment.get("GPUCOST_HOME")
    try:
        if named:
            root = Path(named).expanduser()
        else:
            root = Path(environment.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "gpucost"
        root.mkdir(parents=True, exist_ok=True)
    except RuntimeError as error:  # no such user, or no home folder known
        raise BadInput(f"the state directory cannot be found: {error}", hint=AWAY) from error
    except OSError as error:
        raise BadInput(f"the state directory {str(root)[:200]} cannot be made: {error.strerror}", hint=AWAY) from error
    if not os.access(root, os.W_OK):
        raise BadInput(f"the state directory {root} cannot be written", hint=AWAY)
    return Home(root.resolve())
