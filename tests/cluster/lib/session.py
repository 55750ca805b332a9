"""A command inside a machine, as if it ran here: same streams, same signals, its exit code.

    vcluster (outside) -> agent (in the machine) -> the command, leader of its own process group

The agent passes signals on to the group, and ends it when the vcluster process itself is killed.
"""

import os
import select
import signal
import sys
import time

import kernel as k
from inside import machine_environ
from kernel import EVERYTHING

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1,
             signal.SIGUSR2)
GRACE_S = 3  # between SIGTERM and SIGKILL when vcluster itself was killed


def run(cluster, machine, argv):
    """Runs argv in the machine and returns its exit code, 128 + n after signal n."""
    init = cluster.process_of(machine)
    if init is None:
        print(f"vcluster: {machine} is off", file=sys.stderr)
        return 255
    environ = machine_environ(cluster, user=True)
    cwd = os.getcwd()
    # A signal that our caller ignores (nohup, a background job) the command ignores as well.
    signals = [s for s in FORWARDED if signal.getsignal(s) != signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    life_r, life_w = os.pipe()
    tty = _foreground_tty()
    try:
        k.setns(init, k.NEWPID)
        agent = _fork_keeping_ignored(signals)
    except OSError as e:
        print(f"vcluster: {machine} is going off: {e}", file=sys.stderr)
        return 255
    if agent == 0:
        os.close(life_w)
        _agent_main(init, life_r, tty, signals, argv, environ, cwd, cluster.home())
    os.close(life_r)
    os.close(init)

    def forward(signum, _frame):
        try:
            os.kill(agent, signum)
        except ProcessLookupError:
            pass

    for s in signals:
        signal.signal(s, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    while True:
        _, status = os.waitpid(agent, os.WUNTRACED)
        if os.WIFSTOPPED(status):  # Ctrl-Z: stop as the command did, go on together
            _give_tty(tty, os.getpgrp())
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(agent, signal.SIGCONT)
            continue
        _give_tty(tty, os.getpgrp())
        if os.WIFSIGNALED(status):
            print(f"vcluster: {machine} went off", file=sys.stderr)
            return 128 + os.WTERMSIG(status)
        return os.WEXITSTATUS(status)


def _fork_keeping_ignored(signals):
    pid = os.fork()
    if pid == 0:
        for s in signals:
            signal.signal(s, signal.SIG_DFL)
    return pid


def _agent_main(init, life, tty, signals, argv, environ, cwd, home):
    code = 255
    try:
        k.setns(init, EVERYTHING)
        os.close(init)
        os.setpgid(0, 0)
        for folder in (cwd, home, "/"):
            try:
                os.chdir(folder)
                break
            except OSError:
                continue
        wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for s in (signal.SIGCHLD, signal.SIGCONT):
            signal.signal(s, lambda *_: None)
        command = os.fork()
        if command == 0:
            _command_main(tty, signals, argv, environ)
        try:
            os.setpgid(command, command)
        except OSError:
            pass  # it has done so itself and is past exec

        def pass_on(signum, _frame):
            try:
                os.killpg(command, signum)
            except ProcessLookupError:
                pass

        for s in signals:
            signal.signal(s, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        code = _agent_wait(command, life, wake_r, tty)
    except BaseException as e:
        print(f"vcluster: {e}", file=sys.stderr)
    os._exit(code)


def _foreground_tty():
    """Standard input, when it is a terminal in whose foreground we are; the command takes over."""
    try:
        return 0 if os.tcgetpgrp(0) == os.getpgrp() else -1
    except OSError:
        return -1


def _give_tty(tty, group):
    if tty < 0:
        return
    old = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(tty, group)
    except OSError:
        pass
    signal.signal(signal.SIGTTOU, old)


def _command_main(tty, signals, argv, environ):
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        _give_tty(tty, os.getpgid(0))
        for s in signals:
            signal.signal(s, signal.SIG_DFL)
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        k.default_signals()
        os.execvpe(argv[0], argv, environ)
    except FileNotFoundError:
        print(f"vcluster: {argv[0]}: command not found", file=sys.stderr)
        os._exit(127)
    except BaseException as e:
        print(f"vcluster: {argv[0]}: {e}", file=sys.stderr)
    os._exit(126)


def _agent_wait(command, life, wake, tty):
    kill_at = None
    while True:
        pid, status = os.waitpid(command, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            if tty >= 0:
                os.kill(os.getpid(), signal.SIGSTOP)
                _give_tty(tty, command)
                os.killpg(command, signal.SIGCONT)
        elif pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        watched = [wake] + ([life] if kill_at is None else [])
        timeout = None if kill_at is None else max(0, kill_at - time.monotonic())
        ready, _, _ = select.select(watched, [], [], timeout)
        if wake in ready:
            try:
                os.read(wake, 512)
            except BlockingIOError:
                pass
        if life in ready and kill_at is None:
            os.killpg(command, signal.SIGTERM)
            kill_at = time.monotonic() + GRACE_S
        if kill_at is not None and time.monotonic() >= kill_at:
            os.killpg(command, signal.SIGKILL)
            kill_at = time.monotonic() + GRACE_S
