"""What a machine of the cluster sees: its private mounts and its environment."""

import os

import kernel as k
from cluster import REPO


def _kept(cluster):
    """Folders of the machine that stay visible although a private mount may lie over them."""
    kept = [cluster.dir, REPO]
    kept += [p for p in [os.environ.get("EXASERVE_BIN")] if p]
    kept += [p for p in os.environ.get("VCLUSTER_SHARE", "").split(":") if p]
    return [p for p in (os.path.realpath(p) for p in kept) if os.path.isdir(p)]


def mount_own(cluster, name):
    """Covers what a machine has of its own; everything else is the outside's."""
    # Opened before anything is covered: a bind through the descriptor still finds the original.
    hidden = ("/tmp/", "/run/", "/dev/shm/", "/var/run/", "/var/spool/", "/var/cache/")
    kept = {p: os.open(p, os.O_PATH) for p in _kept(cluster) if p.startswith(hidden)}
    state = os.open(cluster.dir, os.O_PATH)
    at = lambda fd: f"/proc/self/fd/{fd}"
    no_exec = k.MS_NOSUID | k.MS_NODEV | k.MS_NOEXEC

    k.mount("proc", "/proc", "proc", no_exec)
    # A sysfs of this network namespace: UCX looks for its devices in /sys/class/net.
    k.mount("sysfs", "/sys", "sysfs", no_exec)
    # slurmd wants something there, and shall not touch the machine's control groups.
    if os.path.isdir("/sys/fs/cgroup"):
        k.mount("tmpfs", "/sys/fs/cgroup", "tmpfs", no_exec, "mode=755")
    k.mount("tmpfs", "/run", "tmpfs", k.MS_NOSUID | k.MS_NODEV, "mode=755")
    for folder in ("lock", "user", "munge", "vcluster"):
        os.mkdir(f"/run/{folder}")
    k.bind(at(state), "/run/vcluster")
    k.bind("/run/vcluster/munge", "/run/munge")
    own = f"/run/vcluster/m/{name}"
    os.makedirs(f"{own}/cache/exaserve", 0o700, exist_ok=True)
    os.chmod(f"{own}/cache", 0o755)
    k.bind(f"{own}/cache", "/var/cache")
    k.bind(f"{own}/tmp", "/tmp")
    k.mount("tmpfs", "/dev/shm", "tmpfs", k.MS_NOSUID | k.MS_NODEV, "mode=1777")
    k.mount("tmpfs", "/var/spool", "tmpfs", k.MS_NOSUID | k.MS_NODEV, "mode=755")
    os.mkdir("/var/spool/slurmd")
    for path, fd in kept.items():
        os.makedirs(path, exist_ok=True)
        k.mount(at(fd), path, None, k.MS_BIND | k.MS_REC)
    k.bind("/run/vcluster/etc/slurm", "/etc/slurm")
    for source, target in ((f"{own}/hostname", "/etc/hostname"),
                           ("/run/vcluster/etc/hosts", "/etc/hosts"),
                           ("/run/vcluster/etc/resolv.conf", "/etc/resolv.conf")):
        if os.path.exists(target):
            k.bind(source, os.path.realpath(target) if os.path.islink(target) else target)
    for fd in [state, *kept.values()]:
        os.close(fd)


# What belongs to the test cluster and not to the product: see docs/cluster.md.
CLUSTER_ENVIRON = {
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "eth0",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "EXASERVE_CACHE": "/var/cache/exaserve",
}


def machine_environ(cluster, user=False):
    """The environment of a machine's daemons, or of a user's commands: on top of the caller's."""
    e = {}
    if user:
        foreign = ("SLURM_", "SLURMD_", "PMIX_", "PMI_", "OMPI_COMM_", "PRTE_", "XDG_", "MUNGE_")
        e = {key: v for key, v in os.environ.items() if not key.startswith(foreign)}
        for key in ("TMPDIR", "TMP", "TEMP", "HOSTNAME", "EXASERVE_RUN_DIR"):
            e.pop(key, None)
        for key, v in CLUSTER_ENVIRON.items():
            e.setdefault(key, v)
        e["VCLUSTER_NAME"] = cluster.name
    own = os.environ.get("EXASERVE_BIN") or os.path.join(REPO, "build/release/bin")
    path = os.environ.get("PATH", "/usr/bin:/bin") if user else "/usr/bin:/bin"
    e["PATH"] = f"{own}:{path}:/usr/sbin:/sbin" if user else f"{path}:/usr/sbin:/sbin"
    e["HOME"] = cluster.home()
    e["USER"] = e["LOGNAME"] = "root"
    e.setdefault("SHELL", "/bin/bash")
    return e
