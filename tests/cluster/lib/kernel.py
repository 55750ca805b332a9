"""The few Linux calls that Python 3.11 does not wrap, and processes named beyond doubt.

A process is recorded as pid + start time + boot id. It is signalled through a pidfd that was opened
before the start time was compared, so a number that the kernel gave to somebody else is never hit.
"""

import ctypes
import os
import select
import signal

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
EVERYTHING = NEWNS | NEWNET | NEWUTS | NEWIPC  # but the PID namespace, which only children enter
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)
# The caller's view of /proc, kept across namespaces: `self` read through it gives the pid outside.
OUTER_PROC = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)


def _check(rc, what):
    if rc != 0:
        e = ctypes.get_errno()
        raise OSError(e, f"{what}: {os.strerror(e)}")


def unshare(flags):
    _check(_libc.unshare(flags), "unshare")


def setns(fd, flags):
    _check(_libc.setns(fd, flags), "setns")


def mount(source, target, fstype=None, flags=0, data=None):
    enc = lambda s: None if s is None else str(s).encode()
    rc = _libc.mount(enc(source), enc(target), enc(fstype), ctypes.c_ulong(flags), enc(data))
    _check(rc, f"mount {fstype or source} on {target}")


def bind(source, target):
    mount(source, target, None, MS_BIND)


def _stat_fields(pid, proc):
    fd = os.open(f"{pid}/stat", os.O_RDONLY, dir_fd=proc)
    try:
        text = os.read(fd, 4096).decode(errors="replace")
    finally:
        os.close(fd)
    return text[text.rindex(")") + 2:].split()


def start_time(pid, proc=OUTER_PROC):
    """Clock ticks since boot at which pid started; None when it is gone or a zombie."""
    try:
        fields = _stat_fields(pid, proc)
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


def identity():
    """This process as seen from outside all of the cluster's namespaces."""
    pid = int(os.readlink("self", dir_fd=OUTER_PROC))
    spaces = {kind: os.stat(f"{pid}/ns/{kind}", dir_fd=OUTER_PROC).st_ino
              for kind in ("net", "mnt", "uts", "pid")}
    return {"pid": pid, "start": start_time(pid), "boot": boot_id(), "ns": spaces}


def open_process(rec):
    """A pidfd of the recorded process, or None when that process is no more."""
    if not rec or rec.get("boot") != boot_id():
        return None
    try:
        fd = os.pidfd_open(rec["pid"])
    except OSError:
        return None
    if start_time(rec["pid"]) != rec["start"]:
        os.close(fd)
        return None
    return fd


def kill_process(fd, deadline_s=20):
    """SIGKILL and wait until it is gone; True when it is."""
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return True
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(deadline_s * 1000))


def processes_in(net_inodes):
    """pidfds of all processes in these network namespaces.

    Only meaningful while the caller knows that the namespaces live: numbers are reused."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if os.stat(f"/proc/{name}/ns/net").st_ino not in net_inodes:
                continue
            fd = os.pidfd_open(int(name))
        except OSError:
            continue
        try:
            if os.stat(f"/proc/{name}/ns/net").st_ino in net_inodes:
                found.append(fd)
                continue
        except OSError:
            pass
        os.close(fd)
    return found


def fork_quiet(keep=()):
    """fork(); the child keeps the standard streams and `keep`, and no handler of its parent."""
    pid = os.fork()
    if pid:
        return pid
    signal.set_wakeup_fd(-1)
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(s, signal.SIG_DFL)
    wanted = {0, 1, 2, OUTER_PROC, *keep}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in wanted:
            try:
                os.close(int(name))
            except OSError:
                pass
    return 0


def default_signals():
    """What a program expects at exec: Python ignores SIGPIPE and SIGXFSZ."""
    for s in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(s, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
