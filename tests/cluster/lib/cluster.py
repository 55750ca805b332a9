"""One cluster's names, addresses, folder and records.

  <base>/<name>/            base: $VCLUSTER_STATE or /var/tmp/vcluster; locked by changes
      cluster.json          what `up` was asked for
      etc/                  hosts, slurm/slurm.conf, slurm/topology.conf, ...
      home/                 HOME of the users: the folder that all nodes share
      log/                  <machine>.log (output of all), slurmctld.log, slurmd.<node>.log
      m/<machine>/          init.json (the record), hostname, cut, ended, tmp/ cache/
"""

import fcntl
import json
import os
import re
import shutil
import time

from kernel import open_process

SWITCH, CTL, LOGIN = "switch", "ctl", "login"
REPO = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
MAX_NODES = 1000  # a Linux bridge takes 1,023 ports


class Failure(Exception):
    """One line for the user; the program ends with `code`."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


class Cluster:
    def __init__(self, name):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name):
            raise Failure(f"'{name}' is no cluster name: letters, digits, - and _, at most 32", 2)
        self.name = name
        self.base = os.path.abspath(os.environ.get("VCLUSTER_STATE") or "/var/tmp/vcluster")
        self.dir = os.path.join(os.path.realpath(self.base), name)
        self.lock_fd = -1
        self.conf = None

    # --- paths and files ---
    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def home(self):
        return self.path("home")

    def log_of(self, machine):
        return self.path("log", machine + ".log")

    def write(self, text, *parts, mode=0o644):
        """Whole or not at all: a reader never sees half a record."""
        target = self.path(*parts)
        temporary = f"{target}.{os.getpid()}.part"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(fd, "w") as f:
            f.write(text)
        os.rename(temporary, target)

    def discard(self, *parts):
        try:
            os.unlink(self.path(*parts))
        except FileNotFoundError:
            pass

    def read_json(self, *parts):
        try:
            with open(self.path(*parts)) as f:
                return json.load(f)
        except (OSError, ValueError):
            return None

    def load(self):
        """The cluster must stand; raises the line that tells why it does not."""
        self.conf = self.read_json("cluster.json")
        fd = self.process_of(SWITCH)
        if self.conf is None or fd is None:
            if os.path.isdir(self.dir):
                raise Failure(f"cluster {self.name} is gone, its leftovers are in {self.dir}: "
                              f"vcluster down --name {self.name}", 3)
            raise Failure(f"no cluster {self.name}: vcluster up --name {self.name}", 3)
        os.close(fd)
        return self

    # --- machines ---
    def nodes(self):
        return [f"n{i}" for i in range(self.conf["nodes"])]

    def machines(self):
        return [CTL, LOGIN] + self.nodes()

    def need_machine(self, name):
        if name not in self.machines():
            raise Failure(f"cluster {self.name} has no node {name} "
                          f"(n0 to n{self.conf['nodes'] - 1}, {CTL}, {LOGIN})", 2)
        return name

    def address(self, machine):
        if machine == CTL:
            return "10.77.0.1"
        if machine == LOGIN:
            return "10.77.0.2"
        i = int(machine[1:])
        return f"10.77.{i // 200 + 1}.{i % 200 + 1}"

    def rack(self, node):
        return int(node[1:]) // self.conf["rack_size"]

    def record_of(self, machine):
        return self.read_json("m", machine, "init.json")

    def process_of(self, machine):
        """pidfd of the machine's first process, None when the machine is off."""
        return open_process(self.record_of(machine))

    def is_on(self, machine):
        fd = self.process_of(machine)
        if fd is not None:
            os.close(fd)
        return fd is not None

    def has_failed(self, machine):
        """Off, or its daemon has ended."""
        return not self.is_on(machine) or os.path.exists(self.path("m", machine, "ended"))

    def is_cut(self, machine):
        return os.path.exists(self.path("m", machine, "cut"))

    # --- the folder itself ---
    def lock(self, deadline_s=90):
        """Exclusive use of an existing cluster folder; False when there is none."""
        until = time.monotonic() + deadline_s
        while True:
            try:
                fd = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.exists(self.dir) and os.path.samestat(os.fstat(fd), os.stat(self.dir)):
                    self.lock_fd = fd
                    return True
            except BlockingIOError:
                pass
            os.close(fd)
            if time.monotonic() >= until:
                raise Failure(f"cluster {self.name} is being changed by another vcluster")
            time.sleep(0.05)

    def create(self):
        """A fresh, locked folder."""
        os.makedirs(self.base, exist_ok=True)
        while True:
            try:
                os.mkdir(self.dir, 0o755)
            except FileExistsError:
                try:
                    if not self.lock(deadline_s=0):
                        continue
                except Failure:
                    raise Failure(f"cluster {self.name} exists already and is being changed by "
                                  f"another vcluster") from None
                if self.is_on(SWITCH):
                    raise Failure(f"cluster {self.name} exists already: vcluster status --name "
                                  f"{self.name}, or vcluster down --name {self.name}") from None
                if os.listdir(self.dir):  # its machines died with its switch: only files are left
                    self.remove()
                    continue
                return
            if self.lock():
                return

    def remove(self):
        """Deletes the folder (and the base when it is empty) and gives the lock back."""
        for _ in range(20):
            shutil.rmtree(self.dir, ignore_errors=True)
            if not os.path.exists(self.dir):
                break
            time.sleep(0.1)
        else:
            shutil.rmtree(self.dir)
        try:
            os.rmdir(self.base)
        except OSError:
            pass
        self.unlock()

    def unlock(self):
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1
