#!/usr/bin/env python3
"""Who may include whom, and how long a file may be. Run by `make lint` from the repository root.

The rooms and what each may use are read from mk/rooms.mk. One line a finding; exit status 1 when there is any.
"""
import re
import subprocess
import sys

# Headers of libraries that belong to one room, by what the name in <> starts with.
OWNED_HEADERS = {
    "mpi.h": "mpi",
    "pmix": "mpi",
    "ucp/": "wire",
    "uct/": "wire",
    "ucs/": "wire",
    "ucm/": "wire",
    "hdf5": "hdf5io",
    "H5": "hdf5io",
    "cyaml": "config",
    "llhttp": "router",
    "hwloc": "engine",
    "curl/": "cli",
}
MAX_LINES = 600
WARN_LINES = 400
MAX_TEST_LINES = 1000  # a test is a list of cases: length is no sign of two purposes

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SLURM_ENV = re.compile(r'getenv\s*\(\s*"SLURM_')


def rooms():
    uses, order = {}, []
    for line in open("mk/rooms.mk", encoding="utf-8"):
        if m := re.match(r"ROOMS\s*:=\s*(.*)", line):
            order = m.group(1).split()
        elif m := re.match(r"USES_(\w+)\s*:=\s*(.*)", line):
            uses[m.group(1)] = set(m.group(2).split())
    if not order or set(order) != set(uses):
        sys.exit("mk/rooms.mk: ROOMS and USES_ do not name the same rooms")
    return uses


def owner_of(header):
    for start, room in OWNED_HEADERS.items():
        if header.startswith(start):
            return room
    return None


def check_includes(path, room, uses, findings):
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        if SLURM_ENV.search(line) and room != "slurm":
            findings.append(f"{path}:{number}: only slurm/ reads SLURM_ variables")
        m = INCLUDE.match(line)
        if not m:
            continue
        quote, header = m.groups()
        other = header.split("/")[0]
        if quote == '"' and "/" in header and other in uses:
            if other != room and other not in uses[room]:
                findings.append(f"{path}:{number}: {room}/ may not include {header}"
                                f" (mk/rooms.mk: USES_{room})")
        elif quote == '"' and "/" not in header:
            findings.append(f'{path}:{number}: write "{room}/{header}": headers are named from the root')
        owner = owner_of(header) if other not in uses else None
        if owner and owner != room:
            findings.append(f"{path}:{number}: {header} belongs to {owner}/")


def main():
    uses = rooms()
    findings, warnings = [], []
    files = subprocess.run(["git", "ls-files", "*.c", "*.h"], check=True, capture_output=True,
                           text=True).stdout.split()
    for path in files:
        room = path.split("/")[0]
        try:
            length = sum(1 for _ in open(path, encoding="utf-8"))
        except FileNotFoundError:
            continue  # deleted, not committed yet
        if room in uses:
            check_includes(path, room, uses, findings)
            if length > MAX_LINES:
                findings.append(f"{path}: {length} lines, at most {MAX_LINES}")
            elif length > WARN_LINES:
                warnings.append(f"{path}: {length} lines, better under {WARN_LINES}")
        elif length > MAX_TEST_LINES:
            findings.append(f"{path}: {length} lines, at most {MAX_TEST_LINES}")
    for text in warnings:
        print(f"note: {text}")
    for text in findings:
        print(text)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
