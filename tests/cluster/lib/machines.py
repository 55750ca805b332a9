"""Machines as processes: each is the init of a PID namespace, so its death is everything's death.

The switch's init holds the cluster: the machines' PID namespaces are nested in its own, and the
bridge lives in its network namespace. No namespace is bound to a file: when the processes are gone,
so is everything. An init writes its own record before it does anything else, and until `up` has
committed the switch ends when `up` does.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

import kernel as k
from cluster import CTL, LOGIN, SWITCH, Failure
from inside import machine_environ, mount_own

COMMIT = b"c"


def _ip(commands, keep_going=False):
    done = subprocess.run(["ip"] + ["-force"] * keep_going + ["-batch", "-"],
                          input="\n".join(commands) + "\n", text=True, capture_output=True,
                          env={"PATH": os.environ.get("PATH", "/usr/sbin:/sbin"), "LC_ALL": "C"})
    if done.returncode != 0 and not keep_going:
        raise Failure(f"ip: {done.stderr.strip()}")


def _no_ipv6():
    """Keeps the links quiet and usable at once (no duplicate address detection)."""
    for scope in ("all", "default"):
        try:
            with open(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6", "w") as f:
                f.write("1")
        except OSError:
            pass


def _veth(machine):
    return f"v-{machine}"


def _say(text):
    print(f"{time.strftime('%H:%M:%S')} vcluster: {text}", file=sys.stderr, flush=True)


def _become_init(cluster, machine):
    """First steps of a namespace's process 1: its record, then its own output file."""
    os.setsid()
    cluster.write(json.dumps(k.identity()), "m", machine, "init.json")
    out = os.open(cluster.log_of(machine), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.close(null)
    os.umask(0o022)
    os.chdir("/")


def _reap(cluster, machine, names):
    """Collects the dead forever. names: pid to name of the daemons that should not end; that is
    noted in m/<machine>/ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in names:
                    text = f"{names.pop(pid)} ended: status {os.waitstatus_to_exitcode(status)}"
                    _say(text)
                    cluster.write(text, "m", machine, "ended")
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


def _daemon(argv, environ):
    pid = os.fork()
    if pid == 0:
        try:
            k.default_signals()
            os.setsid()
            os.execvpe(argv[0], argv, environ)
        finally:
            _say(f"{argv[0]} does not start")
            os._exit(127)
    return pid


# --- the switch ---
def start_switch(cluster):
    """Forks the switch's init; returns our end of its leash: write COMMIT; closed, all ends."""
    leash, hand = os.pipe()
    pid = k.fork_quiet({leash})
    if pid == 0:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            k.unshare(k.EVERYTHING | k.NEWPID)
            if os.fork() == 0:
                _switch_main(cluster, leash)
            code = 0
        except BaseException as e:  # noqa: the child must never return into its parent's code
            print(f"vcluster: switch: {e}", file=sys.stderr)
        os._exit(code)
    os.close(leash)
    if os.waitpid(pid, 0)[1] != 0:
        raise Failure("the switch's namespaces could not be made")
    return hand


def _switch_main(cluster, leash):
    try:
        _become_init(cluster, SWITCH)
        k.mount(None, "/", None, k.MS_REC | k.MS_PRIVATE)
        k.mount("proc", "/proc", "proc", k.MS_NOSUID | k.MS_NODEV | k.MS_NOEXEC)
        socket.sethostname(SWITCH)
        _no_ipv6()
        _ip(["link set lo up", "link add br0 type bridge mcast_snooping 0", "link set br0 up"])
        cluster.write("", "m", SWITCH, "ready")
        while select.select([leash], [], [], 0.5)[0] == []:
            pass
        if os.read(leash, 1) == COMMIT:
            os.close(leash)
            _reap(cluster, SWITCH, {})
    except BaseException as e:
        _say(f"switch: {e}")
    os._exit(1)


def in_switch(cluster, work):
    """Runs work() in all of the switch's namespaces, in a process of its own."""
    fd = cluster.process_of(SWITCH)
    if fd is None:
        raise Failure(f"cluster {cluster.name}: the switch is gone")
    pid = k.fork_quiet({fd})
    if pid == 0:
        code = 1
        try:
            # A Ctrl-C is the caller's to handle; a dead switch takes us along.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            k.setns(fd, k.NEWPID)
            inner = os.fork()
            if inner == 0:
                k.setns(fd, k.EVERYTHING)
                os.close(fd)
                work()
                os._exit(0)
            code = 0 if os.waitpid(inner, 0)[1] == 0 else 1
        except BaseException as e:
            print(f"vcluster: {e}", file=sys.stderr)
        os._exit(code)
    os.close(fd)
    if os.waitpid(pid, 0)[1] != 0:
        raise Failure(f"cluster {cluster.name}: a step in the switch failed")


def output_of(cluster, machine, argv):
    """What argv prints on the machine; empty when that is off. The process is the machine's, so it
    never outlives it."""
    init = cluster.process_of(machine)
    if init is None:
        return ""
    out_r, out_w = os.pipe()
    pid = k.fork_quiet({init, out_w})
    if pid == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            k.setns(init, k.NEWPID)
            inner = os.fork()
            if inner == 0:
                k.setns(init, k.EVERYTHING)
                os.dup2(os.open("/dev/null", os.O_RDWR), 0)
                os.dup2(0, 2)
                os.dup2(out_w, 1)
                k.default_signals()
                os.execvpe(argv[0], argv, machine_environ(cluster, user=True))
            os.close(out_w)
            os.waitpid(inner, 0)
        except OSError:
            pass  # the machine is going off
        os._exit(0)
    os.close(init)
    os.close(out_w)
    with os.fdopen(out_r, errors="replace") as f:
        text = f.read()
    os.waitpid(pid, 0)
    return text


def set_link(cluster, machine, up):
    in_switch(cluster, lambda: _ip([f"link set {_veth(machine)} {'up' if up else 'down'}"]))


# --- machines ---
def start_machines(cluster, names):
    """Boots machines. Their /tmp is emptied, their cache stays."""
    in_switch(cluster, lambda: _boot(cluster, names))


def _boot(cluster, names):
    # The kernel removes a dead machine's link some time after its last process.
    _ip([f"link del {_veth(name)}" for name in names], keep_going=True)
    makers, links = [], []
    for name in names:
        ready_r, ready_w = os.pipe()
        go_r, go_w = os.pipe()
        pid = k.fork_quiet({ready_w, go_r})
        if pid == 0:
            _maker_main(cluster, name, ready_w, go_r)
        os.close(ready_w)
        os.close(go_r)
        makers.append((name, pid, go_w))
        if os.read(ready_r, 1) != b"r":
            raise Failure(f"{name}: its namespaces could not be made")
        os.close(ready_r)
        veth = _veth(name)
        links.append(f"link add {veth} type veth peer name eth0 netns {pid}")
        links.append(f"link set {veth} master br0")
        if not cluster.is_cut(name):
            links.append(f"link set {veth} up")
    _ip(links)
    for name, pid, go_w in makers:
        os.write(go_w, b"g")
        os.close(go_w)
        if os.waitpid(pid, 0)[1] != 0:
            raise Failure(f"{name} could not be started")


def _maker_main(cluster, name, ready_w, go_r):
    code = 1
    try:
        k.unshare(k.EVERYTHING | k.NEWPID)
        os.write(ready_w, b"r")
        os.close(ready_w)
        if os.read(go_r, 1) == b"g":
            cluster.discard("m", name, "ended")
            os.close(go_r)
            told_r, told_w = os.pipe()
            if os.fork() == 0:
                os.close(told_r)
                _machine_main(cluster, name, told_w)
            os.close(told_w)
            code = 0 if os.read(told_r, 1) == b"r" else 1  # it has written its record
    except BaseException as e:
        print(f"vcluster: {name}: {e}", file=sys.stderr)
    os._exit(code)


def _machine_main(cluster, name, told_w):
    try:
        _become_init(cluster, name)
        os.write(told_w, b"r")
        os.close(told_w)
        _say(f"{name} boots")
        _empty(cluster.path("m", name, "tmp"), 0o1777)
        mount_own(cluster, name)
        socket.sethostname(name)
        _no_ipv6()
        _ip(["link set lo up", f"addr add {cluster.address(name)}/16 dev eth0",
             "link set eth0 up"])
        environ = machine_environ(cluster)
        names = {}
        if name == CTL:
            names[_daemon(["munged", "--foreground", "--force", "--num-threads=2",
                           "--key-file=/run/vcluster/etc/munge.key",
                           "--socket=/run/munge/munge.socket.2",
                           "--pid-file=/run/munged.pid", "--seed-file=/run/munged.seed",
                           "--log-file=/run/vcluster/log/munged.log"], environ)] = "munged"
            _wait_for("/run/munge/munge.socket.2", 10)
            names[_daemon(["slurmctld", "-D"], environ)] = "slurmctld"
        elif name != LOGIN:
            names[_daemon(["slurmd", "-D", "-N", name], environ)] = "slurmd"
        cluster.write("", "m", name, "ready")
        _reap(cluster, name, names)
    except BaseException as e:
        _say(f"{name}: {e}")
    os._exit(1)


def _wait_for(path, deadline_s):
    until = time.monotonic() + deadline_s
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise Failure(f"{path} did not appear within {deadline_s} s")
        time.sleep(0.01)


def _empty(folder, mode):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, mode)


# --- death ---
def _kill_with_strays(cluster, machines):
    """SIGKILL to the machines' inits, which takes all of their processes; then to whoever had only
    joined a network namespace of theirs from outside."""
    records = [r for r in map(cluster.record_of, machines) if r]
    inits = []
    for rec in records:
        fd = k.open_process(rec)
        if fd is not None:
            inits.append((rec, fd))
    # Looked for while the inits live: afterwards the inode numbers may belong to others.
    strays = k.processes_in({rec["ns"]["net"] for rec, _ in inits}) if inits else []
    ok = all([k.kill_process(fd) for _, fd in inits])
    ok = all([k.kill_process(fd) for fd in strays]) and ok
    for fd in strays + [fd for _, fd in inits]:
        os.close(fd)
    return ok


def stop_machine(cluster, machine):
    return _kill_with_strays(cluster, [machine])


def stop_cluster(cluster):
    try:
        machines = os.listdir(cluster.path("m"))
    except OSError:
        machines = []
    return _kill_with_strays(cluster, machines)
