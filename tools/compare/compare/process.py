"""Runs one command on chosen processors, and says what it printed and how much memory it took.

It knows nothing of models or peers.
"""

import os
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)  # added to the environment


@dataclass(frozen=True)
class Finished:
    output: str
    peak_rss: int  # bytes


class Failed(Exception):
    """The command ended with an error, or not in time."""


def realtime_allowed() -> bool:
    """Whether this process may give its children real-time priority."""
    try:
        subprocess.run(["true"], preexec_fn=_become_realtime, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def run(command: Command, cpus: list[int], realtime: bool, timeout: float) -> Finished:
    """Runs a command to its end on `cpus` alone, ahead of all other processes where `realtime` is set."""

    def settle() -> None:
        os.sched_setaffinity(0, cpus)
        if realtime:
            _become_realtime()

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            preexec_fn=settle,
        )
        timer = threading.Timer(timeout, child.kill)
        timer.start()
        try:
            # Unlike Popen.wait, this also gives the memory of just this child.
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:  # Ctrl-C: leave nothing running
            child.kill()
            raise
        finally:
            timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        output, errors = out.read(), err.read()
    if child.returncode != 0:
        raise Failed(f"{command.argv[0]} ended with {child.returncode}: {_last_lines(errors or output)}")
    return Finished(output, usage.ru_maxrss * 1024)


@contextmanager
def busy(cpus: list[int]):
    """As many busy processes as there are `cpus`, on these."""
    burners = [
        subprocess.Popen(["yes"], stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        for _ in cpus
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _become_realtime() -> None:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _last_lines(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-3:])[-400:]
