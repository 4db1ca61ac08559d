"""`python -m drills [GROUP ...]`: play the drills and write their table."""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from drills import api, checks, processes, records
from drills.ground import Ground, Loopback, OpenStore
from drills.result import Drill, Result, table
from drills.scene import Scene
from remote.dataset.digits import make_digits

GROUPS = ("records", "processes", "api", "vm")


@dataclass(frozen=True, slots=True)
class Stock:
    """What all drills share."""

    folder: Path
    """For everything; gone at the end."""
    pictures: Path
    """The data set."""
    keep: Path | None
    """Where what is left of a drill that did not hold is kept."""


def main(argv: Sequence[str]) -> int:
    """Play what is asked for; 1 if anything did not hold."""
    asked = _arguments(argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # also in the background: everything is taken down
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="gpucost-drills-") as folder:
        pictures = make_digits(Path(folder) / "pictures", train=24, val=8, size=128)
        for group in asked.groups:
            for result in _play_group(group, asked, Stock(Path(folder), pictures, asked.keep)):
                results.append(result)
                _tell(result)
                _write(asked.report, results)
    sys.stdout.write(table(results))
    return 0 if results and all(result.held for result in results) else 1


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="drills", description="Whole runs with somebody pulling plugs.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--only", default="*", help="play the drills whose name fits, as `vm/stop-*`")
    parser.add_argument("--skip", action="append", default=[], metavar="PATTERN", help="leave these out; repeatable")
    parser.add_argument("--report", type=Path, help="write the table here too, after each drill")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy the state of drills that did not hold here")
    asked = parser.parse_args(argv)
    unknown = set(asked.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    asked.groups = asked.groups or list(GROUPS)
    return asked


def _play_group(group: str, asked: argparse.Namespace, stock: Stock) -> Iterator[Result]:
    with _ground(group) as ground:
        if isinstance(ground, str):
            yield Result(Drill(f"{group}/*", "nothing", lambda _scene: None), f"skipped: {ground}", 0.0)
            return
        for drill in _drills(group):
            if fnmatch.fnmatch(drill.name, asked.only) and not any(fnmatch.fnmatch(drill.name, p) for p in asked.skip):
                yield _play(drill, stock, ground)


@contextmanager
def _ground(group: str) -> Iterator[type[Ground] | str]:
    """Where the drills of a group take place, or why they cannot."""
    if not sys.platform.startswith("linux"):
        yield "the drills need Linux"
    elif group == "vm":
        from drills.vm import ground, network

        reason = ground.missing()
        if reason is not None:
            yield reason
            return
        with network.bridge():
            yield ground.Vms
    else:
        yield OpenStore if group == "api" else Loopback


def _drills(group: str) -> Iterable[Drill]:
    """In order; the later ones of a group may depend on what the earlier ones saw."""
    if group == "records":
        return records.drills()
    if group == "processes":
        return processes.DRILLS
    if group == "api":
        return api.drills()
    from drills.vm import plays

    return plays.DRILLS


def _play(drill: Drill, stock: Stock, ground: type[Ground]) -> Result:
    """One drill from an empty home to an empty host. Whatever goes wrong is told in the result."""
    started = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="drill-", dir=stock.folder))
    try:
        result = _on_stage(drill, Scene(place, stock.pictures, ground))
    except Exception as error:  # noqa: BLE001 - the next drill shall play all the same
        result = Result(drill, "the stage broke", 0.0, faults=(_words(error),))
    result = replace(result, faults=(*result.faults, *checks.left_on_host(place)), seconds=time.monotonic() - started)
    if stock.keep is not None and not result.held:
        shutil.copytree(
            place,
            stock.keep / drill.name,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("s3", "*.sock"),
        )
    shutil.rmtree(place, ignore_errors=True)
    return result


def _on_stage(drill: Drill, scene: Scene) -> Result:
    verdict = None
    try:
        try:
            drill.play(scene)
        except Exception as error:  # noqa: BLE001 - what must hold is looked at all the same
            scene.faults.append(_words(error))
        scene.keep_words()
        verdict = checks.examine(scene)
    except Exception as error:  # noqa: BLE001 - a look that fails is a fault of the drill
        scene.faults.append(_words(error))
    finally:
        left = scene.close()
    faults = (*scene.faults, *(verdict.faults if verdict else ()), *(f"left over: {thing}" for thing in left))
    if verdict is None:
        return Result(drill, "could not be examined", 0.0, faults=faults)
    return Result(drill, verdict.outcome, 0.0, verdict.loss, verdict.billed_after_seconds, verdict.usd, faults)


def _words(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:800]} ({Path(place.filename).name}:{place.lineno})"


def _tell(result: Result) -> None:
    mark = "held" if result.held else "DID NOT HOLD"
    sys.stderr.write(f"{result.drill.name:28} {mark}: {result.outcome} ({result.seconds:.0f} s)\n")
    for fault in result.faults:
        sys.stderr.write(f"{'':28} - {fault}\n")
    sys.stderr.flush()


def _write(report: Path | None, results: Sequence[Result]) -> None:
    if report is not None:
        report.write_text(table(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
