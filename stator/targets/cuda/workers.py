"""The processes that compile kernels: as many as there are cores, once there is that much to do.

`expect` starts the server of `worker.py`, which takes as long as Triton's import, so whoever knows that kernels will
come asks early. `submit` gives a future at once. A worker is forked by the server when a job finds none that is idle;
one thread of this process belongs to each, and ends with it after a time without jobs, the server with the last of
them. A worker that dies takes its job with it, and no other: the future raises `WorkerDied`.
A forked child of this process has no workers until it asks for its own; all end with the process that has them.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("worker.py")
#: More would wait for each other's memory.
MOST_WORKERS = 32
IDLE_SECONDS = 60.0
#: The name of threads that wait for a worker. They do nothing with a device.
THREAD = "stator-compile"

Job = Mapping[str, Any]
Answer = dict[str, Any]
Take = Callable[[Answer], None]
#: The kind of device, which of its kind, and how many lanes go together: what Triton's targets are made of.
Target = tuple[str, Any, int]


class WorkerDied(Exception):
    """The process that should have compiled a kernel is no more, or was never there."""


def cores_each() -> int:
    """Cores for each of the processes that a launcher has started on this machine, within a bound."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    processes = int(told) if told.isdigit() else 1
    return min(max(len(os.sched_getaffinity(0)) // max(processes, 1), 1), MOST_WORKERS)


class Workers:
    """A server and the workers that it has forked, for one target."""

    def __init__(self, target: Target, most: int = 0) -> None:
        self.target = target
        self.most = most or cores_each()
        self._jobs: queue.SimpleQueue[tuple[Job, Take, Future[Answer]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._unfinished = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def expect(self) -> None:
        """Start the server, so that it is there when jobs come."""
        with self._lock:
            self._start()

    def submit(self, job: Job, take: Take) -> Future[Answer]:
        """What a worker answers to a job, once `take` has been called with it."""
        future: Future[Answer] = Future()
        with self._lock:
            self._unfinished += 1
            self._jobs.put((job, take, future))
            if self._unfinished > len(self._connections) < self.most:
                self._fork()
        return future

    def close(self) -> None:
        """End the server at once, and workers when they have done what they do now."""
        with self._lock:
            for connection in self._connections:
                _shut(connection)
            self._stop()

    def abandon(self) -> None:
        """In a forked child: let go of what belongs to the parent."""
        for connection in self._connections:
            connection.close()
        if self._control is not None:
            self._control.close()
        if self._server is not None:
            self._server.returncode = 0  # it is no child of this process

    # -- with the lock

    def _start(self) -> None:
        if self._server is not None and self._server.poll() is None:
            return
        self._stop()
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            path = json.dumps([str(entry) for entry in sys.path])
            command = [sys.executable or "", "-P", str(PROGRAM), str(number), json.dumps(self.target), path]
            try:
                self._server = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(number,)
                )
            except OSError:
                ours.close()
                return
        self._control = ours

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
        self._control = self._server = None

    def _fork(self) -> None:
        """One more worker, which is there once the server has forked it."""
        self._start()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                assert self._control is not None
                socket.send_fds(self._control, [b"\0"], [theirs.fileno()])
            except (AssertionError, OSError):  # there is no server: the thread finds nobody at the other end
                pass
        connection = Connection(ours.detach())
        self._connections.add(connection)
        threading.Thread(target=self._serve, args=(connection,), name=THREAD, daemon=True).start()

    # -- the thread of a worker

    def _serve(self, connection: Connection) -> None:
        """Give a worker one job after the other, until it dies or there is nothing to do for a while."""
        proven = False
        while True:
            try:
                job, take, future = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._retire(connection):
                    return
                continue
            sent = False
            try:
                connection.send(job)
                sent = True
                answer = connection.recv()
            except (EOFError, OSError):
                if proven and not sent:  # it had died before, which is not the job's fault
                    self._jobs.put((job, take, future))
                else:
                    self._done()
                    future.set_exception(WorkerDied("the process that compiled it has ended"))
                self._bury(connection)
                return
            proven = True
            self._done()
            try:
                take(answer)
            except OSError as error:  # there is no place for it
                future.set_exception(error)
            else:
                future.set_result(answer)

    def _done(self) -> None:
        with self._lock:
            self._unfinished -= 1

    def _retire(self, connection: Connection) -> bool:
        """Let a worker go that nobody needs; false where a job has just come."""
        with self._lock:
            if not self._jobs.empty():
                return False
            self._connections.discard(connection)
            connection.close()
            if not self._connections:
                self._stop()
            return True

    def _bury(self, connection: Connection) -> None:
        """Another worker takes over, if there are jobs that nobody else would take."""
        with self._lock:
            self._connections.discard(connection)
            connection.close()
            if self._unfinished > len(self._connections):
                self._fork()


def _shut(connection: Connection) -> None:
    """End a connection that a thread may be reading from."""
    with socket.socket(fileno=os.dup(connection.fileno())) as shared:
        try:
            shared.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end is gone already
            return


_all: dict[Target, Workers] = {}
_all_lock = threading.Lock()


def workers(target: Target) -> Workers:
    """Those of this process for a target."""
    with _all_lock:
        found = _all.get(target)
        if found is None:
            found = _all[target] = Workers(target)
        return found


def _forget() -> None:
    """In a forked child: the locks may be held by threads that are not there, so all is made anew."""
    global _all_lock
    _all_lock = threading.Lock()
    inherited = list(_all.values())
    _all.clear()
    for each in inherited:
        each.abandon()


@atexit.register
def close() -> None:
    """End all."""
    for each in list(_all.values()):
        each.close()


os.register_at_fork(after_in_child=_forget)
