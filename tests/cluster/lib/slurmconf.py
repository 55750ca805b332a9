"""The files of a cluster: hosts, slurm.conf, topology.conf, the munge key."""

import os

from cluster import CTL, Failure

SLURM = {
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "AuthType": "auth/munge",
    "StateSaveLocation": "/run/vcluster/m/ctl/state",
    "SlurmdSpoolDir": "/var/spool/slurmd",
    "SlurmctldPidFile": "/run/slurmctld.pid",
    "SlurmdPidFile": "/run/slurmd.pid",
    "SlurmctldLogFile": "/run/vcluster/log/slurmctld.log",
    "SlurmdLogFile": "/run/vcluster/log/slurmd.%n.log",
    # Nothing here needs systemd or control groups.
    "ProctrackType": "proctrack/pgid",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "MpiDefault": "pmix",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "TopologyPlugin": "topology/tree",
    "TreeWidth": "64",
    "ReturnToService": "2",
    "SlurmctldTimeout": "60",
    "SlurmdTimeout": "10",  # a dead node is down after 10 to 15 s
    "KillOnBadExit": "0",
    # More CPUs and memory than the machine has: the cluster pretends.
    "SlurmdParameters": "config_overrides",
}


def _slurm_conf(cluster):
    c = cluster.conf
    lines = dict(SLURM)
    for extra in c["conf"]:
        key, eq, value = extra.partition("=")
        if not eq or not key.strip() or "\n" in extra:
            raise Failure(f"--conf wants KEY=VALUE of slurm.conf, not '{extra}'", 2)
        for known in lines:
            if known.lower() == key.strip().lower():
                key = known
        lines[key.strip()] = value.strip()
    last = c["nodes"] - 1
    out = [f"ClusterName={cluster.name.lower()}", f"SlurmctldHost={CTL}({cluster.address(CTL)})"]
    out += [f"{k}={v}" for k, v in lines.items()]
    out.append(f"NodeName=n[0-{last}] CPUs={c['cpus']} RealMemory=20000 State=UNKNOWN")
    out.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(out) + "\n"


def _topology_conf(cluster):
    n, size = cluster.conf["nodes"], cluster.conf["rack_size"]
    racks = range((n + size - 1) // size)
    out = [f"SwitchName=rack{r} Nodes=n[{r * size}-{min(n, (r + 1) * size) - 1}]" for r in racks]
    out.append(f"SwitchName=core Switches=rack[0-{racks[-1]}]")
    return "\n".join(out) + "\n"


def write_all(cluster):
    for folder in ("etc/slurm", "home", "log", "m", "munge"):
        os.makedirs(cluster.path(folder), 0o755)
    os.chmod(cluster.home(), 0o700)
    hosts = ["127.0.0.1 localhost"]
    for machine in cluster.machines():
        os.makedirs(cluster.path("m", machine))
        cluster.write(machine + "\n", "m", machine, "hostname")
        hosts.append(f"{cluster.address(machine)} {machine}")
    os.mkdir(cluster.path("m", "switch"))
    os.mkdir(cluster.path("m", CTL, "state"), 0o700)
    cluster.write("\n".join(hosts) + "\n", "etc", "hosts")
    cluster.write("", "etc", "resolv.conf")  # no name server: an unknown name fails at once
    cluster.write(_slurm_conf(cluster), "etc", "slurm", "slurm.conf")
    cluster.write(_topology_conf(cluster), "etc", "slurm", "topology.conf")
    # Named, because slurmd otherwise looks for a mounted hierarchy; nothing uses it.
    cluster.write("CgroupPlugin=cgroup/v1\n", "etc", "slurm", "cgroup.conf")
    fd = os.open(cluster.path("etc", "munge.key"), os.O_WRONLY | os.O_CREAT, 0o400)
    with os.fdopen(fd, "wb") as f:
        f.write(os.urandom(1024))
