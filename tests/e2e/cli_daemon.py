#!/usr/bin/env python3
"""Stands in for exaserved in tests of `exaserve run`: --plan prints a number of ranks; as a rank of a --world, rank 0 serves by
cli_stub.py and keeps endpoint.json, the others wait. CLI_DAEMON in the environment picks a fault: hang, die, fail, again, stubborn.
"""
import json, os, signal, socket, subprocess, sys, time

fault = os.environ.get("CLI_DAEMON", "")
args = dict(zip(sys.argv[2::2], sys.argv[3::2]))
run_dir, attempt = args["--run-dir"], int(args["--attempt"])
if sys.argv[1] == "--plan":
    assert open(args["--nodes-file"]).read().split()[0] == socket.gethostname()
    if fault == "plan":
        print("the plan does not fit", file=sys.stderr)
        sys.exit(4)
    print("3\n1")
    sys.exit(0)

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
key = open(run_dir + "/key").read().strip()
urls = []


def publish(state, progress):
    os.umask(0o077)
    with open(run_dir + "/endpoint.tmp", "w") as f:
        json.dump({"version": 1, "job": os.path.basename(run_dir), "cluster": "local", "name": "exaserve", "state": state,
                   "progress": progress, "key": key, "model": "it's \"a\" model", "urls": urls, "n_ready": 1, "n_wanted": 1, "n_min": 1,
                   "attempt": attempt, "updated_wall_s": 1, "end_wall_s": 0}, f)
    os.rename(run_dir + "/endpoint.tmp", run_dir + "/endpoint.json")


drained = []
if fault == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *a: drained.append(1))
print("rank %d of attempt %d begins" % (rank, attempt), file=sys.stderr, flush=True)
open(run_dir + "/pid-%d" % rank, "w").write(str(os.getpid()))
if fault == "die" or (fault == "again" and attempt < 3):
    time.sleep(0.3)
    print("rank %d cannot start" % rank, file=sys.stderr, flush=True)
    sys.exit(75 if fault == "again" else 9)
engine = None
if rank == 0:
    publish("STARTING", "loading the model")
    time.sleep(1)
    if fault == "fail":
        publish("FAILED", "the model does not fit")
    elif fault != "hang":
        port = run_dir + "/stub.port"
        engine = subprocess.Popen([sys.executable, os.path.dirname(os.path.abspath(__file__)) + "/cli_stub.py", port, key, run_dir + "/stub.log"])
        while not os.path.exists(port):
            time.sleep(0.05)
        urls.append("http://127.0.0.1:" + open(port).read())
        publish("READY", "1 of 1 replicas is ready")
while not drained:
    time.sleep(0.05)
if rank == 0:
    publish("DRAINING", "waiting for 1 request")
    time.sleep(0.5)
    if engine:
        engine.kill()
    publish("STOPPED", "bye")
