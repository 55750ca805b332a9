#!/bin/bash
# The virtual cluster itself: real Slurm and MPI inside, nothing changed outside, nothing left behind.
set -u
cd "$(dirname "$0")/../.." || exit 1
V=tests/cluster/vcluster
if [ "$(id -u)" != 0 ]; then echo "1..0 # SKIP needs root"; exit 0; fi
for t in slurmctld slurmd munged ip mpicc; do
    command -v $t >/dev/null || { echo "1..0 # SKIP $t is not installed"; exit 0; }
done
unset VCLUSTER_NAME
export VCLUSTER_STATE; VCLUSTER_STATE=$(mktemp -d /tmp/vcluster-test.XXXXXX)/state
A=t9000a$$ B=t9000b$$ C=t9000c$$
HOME_A=$VCLUSTER_STATE/$A/home
n=0 failed=0
ok() { # ok STATUS DESCRIPTION [DETAIL]
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else
        failed=1; echo "not ok $n - $2"; [ $# -lt 3 ] || sed 's/^/# /' <<<"$3"
    fi
}
is() { if [ "$1" = "$2" ]; then ok 0 "$3"; else ok 1 "$3" "got:      $1
expected: $2"; fi }
like() { if grep -qE -- "$2" <<<"$1"; then ok 0 "$3"; else ok 1 "$3" "got: $1
expected: /$2/"; fi }
# until_true SECONDS COMMAND...: polls
until_true() {
    local end=$((SECONDS + $1)); shift
    until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done
}
a() { local c=$1; shift; $V "$c" --name $A "$@"; }
# What must not change outside. Other tests may run beside us, so nothing that counts processes.
outside() {
    hostname; cat /proc/sys/kernel/hostname
    find /etc -type f -printf '%p %i %s %T@\n' 2>/dev/null | LC_ALL=C sort | md5sum
    ip -o link | sed 's/ qdisc.*//'; ip -o addr | sed 's/valid_lft.*//'; ip route; awk '$3 == "0x6"' /proc/net/arp
    sed 's/^[0-9]* [0-9]* //' /proc/self/mountinfo
    ls -d /run/netns /run/munge /run/slurm* /dev/shm/* /var/spool/slurmd 2>&1
}
# pid:start of every process in a cluster's namespaces, by its records
members() { # NAME
    local nets inode path pid
    nets=" $(jq -r .ns.net "$VCLUSTER_STATE/$1"/m/*/init.json | tr '\n' ' ')"
    while read -r inode path; do
        [[ $nets == *" $inode "* ]] || continue
        pid=${path#/proc/}; pid=${pid%%/*}
        echo "$pid:$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f20)"
    done < <(stat -Lc '%i %n' /proc/[0-9]*/ns/net 2>/dev/null)
}
alive() { # of these pid:start
    local m
    for m; do
        [ "$(sed 's/.*) //' "/proc/${m%:*}/stat" 2>/dev/null | awk '$1 !~ /[ZX]/ {print $20}')" = "${m#*:}" ] &&
            echo "$m"
    done
}
# processes that carry a cluster's folder or name, for clusters whose records we could not read in time
carriers() { # NAME
    { grep -slz "^HOME=$VCLUSTER_STATE/$1/" /proc/[0-9]*/environ
      grep -slxz -- "[${1:0:1}]${1:1}" /proc/[0-9]*/cmdline; } | cut -d/ -f3
}
no_carriers() { [ -z "$(carriers "$1")" ]; }
cleanup() {
    [ "$BASHPID" = $$ ] || return
    for c in $A $B $C; do $V down --name $c >/dev/null 2>&1; done
    rm -rf "${VCLUSTER_STATE%/state}"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
before=$(outside)

# --- command line ---
like "$($V --help)" '^  up .*--rack-size' 'help lists the commands'
for c in up login exec kill boot cut heal status down; do
    like "$($V $c --help)" '^usage: vcluster' "$c --help"
done
# may read a working tree that is private to root, and no more
got=$(setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search $V up --name $A 2>&1); rc=$?
is "$rc $got" '77 vcluster: needs root: it makes namespaces' 'needs root and says so'
got=$($V up --name $A --nodse 3 2>&1); is "$? $got" '2 vcluster: unknown option --nodse (vcluster --help)' 'unknown option'
got=$($V up --name ../x 2>&1); is $? 2 'a name is no path'
got=$($V up --name $A --nodes 0 2>&1); is "$? $got" '2 vcluster: --nodes is 0: from 1 to 1000' 'no cluster without nodes'
got=$($V status --name $A 2>&1); is "$? $got" "3 vcluster: no cluster $A: vcluster up --name $A" 'status without a cluster'
got=$($V login --name $A true 2>&1); is $? 3 'login without a cluster'

# --- up: two clusters side by side ---
got=$(a up --nodes 4 --rack-size 2 --cpus 8 --conf SlurmdTimeout=5 --conf KillWait=5 2>&1); rc=$?
is $rc 0 'up with 4 nodes'
like "$got" '^vcluster: 4 of 4 nodes idle' 'up tells its progress'
[ $rc = 0 ] || { sed 's/^/# /' <<<"$got"; echo "1..$n"; exit 1; }
got=$(a up 2>&1); is $? 1 'up on an existing name fails'
like "$got" "cluster $A exists already" 'and says so'
$V up --name $B --nodes 2 >/dev/null 2>&1; is $? 0 'a second cluster'
is "$($V login --name $B sinfo -h -o %D)" 2 'it has its own 2 nodes'
is "$(a login sinfo -h -o %D)" 4 'the first still has 4'
is "$(outside)" "$before" 'outside nothing has changed'
like "$(a status)" '^n3 +rack1 +10\.77\.1\.4 +on +ok +idle' 'status shows the nodes'
[ "$(cat "$VCLUSTER_STATE/$A/etc/munge.key" | md5sum)" != "$(cat "$VCLUSTER_STATE/$B/etc/munge.key" | md5sum)" ]
ok $? 'each cluster has its own munge key'
cred=$($V login --name $B munge -n); a login unmunge <<<"$cred" >/dev/null 2>&1
[ $? != 0 ]; ok $? "the other cluster's credential is refused"
a login sh -c 'munge -n | unmunge' >/dev/null; ok $? 'its own is accepted'

# --- what a machine is ---
is "$(a exec n2 hostname) $(a exec n2 cat /etc/hostname) $(a login hostname) $(a exec ctl hostname)" \
    'n2 n2 login ctl' 'host names'
is "$(a exec n2 ls /sys/fs/cgroup)" '' "the machine's control groups are out of reach"
like "$(a exec n2 cat /etc/hosts)" '^10.77.1.4 n3$' '/etc/hosts lists the nodes'
for d in /tmp /dev/shm /var/cache /run /var/spool/slurmd; do
    a exec n0 touch $d/mark; a exec n1 test ! -e $d/mark && [ ! -e $d/mark ]; ok $? "$d is private"
done
a exec n0 sh -c 'echo x >$HOME/mark'
is "$(a exec n1 sh -c 'cat $HOME/mark')$(a login sh -c 'cat $HOME/mark')$(cat "$HOME_A/mark")" xxx 'HOME is shared'
is "$(a login pwd)" "$PWD" 'login keeps the current folder'
a exec n1 test -w "$PWD/Makefile"; ok $? 'the repository is visible on a node'
like "$(a login sh -c 'echo $PATH')" "^$PWD/build/release/bin:" 'the built programs are in PATH'
like "$(EXASERVE_BIN=/opt/x a login sh -c 'echo $PATH')" '^/opt/x:' 'EXASERVE_BIN replaces them'
is "$(a login sh -c 'echo $UCX_TLS $OMPI_MCA_pml $OMPI_MCA_btl')" 'tcp,self ob1 self,tcp' "the cluster's MPI settings"
is "$(a exec n0 ls /sys/class/net | xargs)" 'eth0 lo' '/sys shows the interfaces of the node'
is "$(a exec n0 ip route | xargs)" '10.77.0.0/16 dev eth0 proto kernel scope link src 10.77.1.1' 'no route leads out'
like "$(a login bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' 2>&1)" 'Network is unreachable' 'no traffic leaves'
# A gateway outside may answer for any address: it is what answers that counts.
$V exec --name $A n1 perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); bind(S, sockaddr_in(7777, INADDR_ANY)) or die;
    listen(S, 9); open(F, ">$ENV{HOME}/listens"); while (accept(C, S)) { syswrite(C, "node\n"); close(C) }' & p=$!
until_true 10 test -e "$HOME_A/listens"
ask='exec 3<>/dev/tcp/10.77.1.2/7777 && read -t 3 x <&3 && echo $x'
is "$(a login bash -c "$ask")" node 'a node is reachable inside'
[ "$(timeout 5 bash -c "$ask" 2>/dev/null)" != node ]; ok $? 'and not from outside'
kill $p; wait $p 2>/dev/null
[ "$(a exec n1 sh -c 'ls -d /proc/[0-9]* | wc -l')" -lt 12 ]; ok $? 'a node sees only its own processes'

# --- a command runs as if it ran here ---
a login sh -c 'exit 42'; is $? 42 'exit code'
a login sh -c 'kill -TERM $$'; is $? 143 'death by signal: 128 + n'
got=$(a login no-such-program 2>&1); is "$? $got" '127 vcluster: no-such-program: command not found' 'unknown command'
a exec n9 true 2>/dev/null; is $? 2 'unknown node'
sum=$(head -c 5000000 /dev/urandom | tee "$HOME_A/in" | md5sum)
is "$(a login cat <"$HOME_A/in" | md5sum)" "$sum" '5 MB through stdin and stdout'
is "$(a login sh -c 'echo out; echo err >&2' 2>/dev/null)" out 'stdout and stderr stay apart'
is "$(a login printf '%s|' 'a b' '' '--name' '$x')" 'a b||--name|$x|' 'words arrive as they are'
is "$(a login -- printf x)" x '-- ends the options'
for s in TERM INT HUP KILL; do
    # bash starts background jobs with SIGINT ignored, which the command would inherit
    perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' $V login --name $A sh -c 'echo $$ >$HOME/pid; exec sleep 1000' & p=$!
    until_true 10 test -s "$HOME_A/pid"; q=$(cat "$HOME_A/pid"); rm -f "$HOME_A/pid"
    kill -$s $p; wait $p 2>/dev/null; rc=$?
    until_true 10 a login test ! -e "/proc/$q"; ok $? "SIG$s to vcluster login ends its command (exit code $rc)"
done
is "$(timeout 20 script -qec "$V login --name $A sh -c 'read x; echo got:\$x; tty -s && echo tty'" /dev/null \
    <<<hello 2>/dev/null | tr -d '\r' | grep -E '^(got:|tty)' | xargs)" 'got:hello tty' 'a terminal is handed through'

# --- Slurm ---
is "$(a login srun -N4 -l hostname | sort | xargs)" '0: n0 1: n1 2: n2 3: n3' 'srun on all nodes'
is "$(a login srun -N4 -l sh -c 'echo $SLURM_TOPOLOGY_ADDR' | sort | xargs)" \
    '0: core.rack0.n0 1: core.rack0.n1 2: core.rack1.n2 3: core.rack1.n3' 'racks are in SLURM_TOPOLOGY_ADDR'
is "$(a login sinfo -h -N -n n0 -o %c)" 8 '--cpus'
like "$(a login scontrol show config)" '^KillWait +=  *5 sec' '--conf'
printf 'n0\nn2\nn2\nn3\n' >"$HOME_A/hostfile"
is "$(a login env SLURM_HOSTFILE="$HOME_A/hostfile" srun -n4 --distribution=arbitrary -l hostname | sort | xargs)" \
    '0: n0 1: n2 2: n2 3: n3' 'SLURM_HOSTFILE with --distribution=arbitrary'
a login srun -N2 sh -c 'exit 7' 2>/dev/null; is $? 7 "srun's exit code"
cat >"$HOME_A/job" <<'J'
#!/bin/bash
echo "$HOME $UCX_TLS $(hostname)"
sleep 1000
J
j=$(a login sbatch --parsable -N2 -o "$HOME_A/job.out" "$HOME_A/job"); like "$j" '^[0-9]+$' 'sbatch'
until_true 30 grep -q tcp "$HOME_A/job.out"
is "$(cat "$HOME_A/job.out")" "$HOME_A tcp,self n0" 'a job has the environment of login'
is "$(a login squeue -h -j "$j" -o '%T %D')" 'RUNNING 2' 'squeue'
a login scancel "$j"
job_gone() { [ -z "$(a login squeue -h -j "$1" 2>/dev/null)" ]; }
until_true 30 job_gone "$j"; ok $? 'scancel'

# --- MPI, and the death of a node ---
mpicc -std=gnu17 -O1 -Wall $(pkg-config --cflags pmix) tests/cluster/mpi_world.c -o "$HOME_A/mpi_world" \
    $(pkg-config --libs pmix) 2>"$HOME_A/cc"; ok $? 'the MPI program compiles' "$(cat "$HOME_A/cc")"
is "$(a login timeout 60 srun -N4 --mpi=pmix "$HOME_A/mpi_world" "$HOME_A/w1" 2>&1)" 'world of 4' 'an MPI world over 4 nodes'
is "$(a login env SLURM_HOSTFILE="$HOME_A/hostfile" timeout 60 srun -n4 --distribution=arbitrary --mpi=pmix \
    "$HOME_A/mpi_world" "$HOME_A/w2" 2>&1)" 'world of 4' 'an MPI world with two ranks on one node'
cat >"$HOME_A/mjob" <<'J'
#!/bin/bash
srun --mpi=pmix --no-kill --kill-on-bad-exit=0 $HOME/mpi_world $HOME/w3 linger
echo "srun: $?"
J
j=$(a login sbatch --parsable --no-kill -N4 -o "$HOME_A/mjob.out" "$HOME_A/mjob")
until_true 60 test -e "$HOME_A/w3/beat.3"; ok $? 'a world runs as a job'
a exec n2 touch /tmp/old /var/cache/exaserve/kept
got=$(a kill n2 2>&1); is "$? $got" '0 vcluster: n2 is dead' 'kill'
a exec n2 true 2>/dev/null; is $? 255 'nothing runs on a dead node'
a kill n2 2>/dev/null; is $? 1 'a dead node cannot be killed'
like "$(a status)" '^n2 .* off ' 'status shows it off'
# sinfo may show `mixed*` for a minute more; the job's own node count does not lag.
node_lost() { [ "$(a login squeue -h -j "$j" -o %D)" = 3 ]; }
until_true 120 node_lost; ok $? 'slurmctld notices the death' "$(tail -n 20 "$VCLUSTER_STATE/$A/log/slurmctld.log")"
rm -f "$HOME_A"/w3/beat.*
beats() { [ -e "$HOME_A/w3/beat.0" ] && [ -e "$HOME_A/w3/beat.1" ] && [ -e "$HOME_A/w3/beat.3" ]; }
until_true 20 beats; ok $? 'the three other ranks go on'
is "$(find "$HOME_A"/w3/ -name '*beat.2*' | wc -l)" 0 'the fourth does not'
is "$(a login squeue -h -j "$j" -o %T)" RUNNING 'the job keeps RUNNING'
touch "$HOME_A/w3/stop"; until_true 30 grep -q "^srun: [0-9]" "$HOME_A/mjob.out"
like "$(cat "$HOME_A/mjob.out")" '^srun: 0$' 'srun --no-kill ends with 0'
a boot n2 >/dev/null 2>&1; is $? 0 'boot waits until the node is back'
a boot n2 2>/dev/null; is $? 1 'a running node cannot be booted'
a exec n2 test ! -e /tmp/old; ok $? 'boot empties /tmp'
a exec n2 test -e /var/cache/exaserve/kept; ok $? 'and keeps the cache'
is "$(a login srun -w n2 hostname 2>&1)" n2 'the node works again'

# --- cables ---
reach() { a exec n0 timeout 2 bash -c 'exec 3<>/dev/tcp/n1/6818'; }
a cut n1 >/dev/null; is $? 0 cut
reach 2>/dev/null; [ $? != 0 ]; ok $? 'a cut node is unreachable'
is "$(a exec n1 echo alive)" alive 'but it lives'
like "$(a status)" '^n1 .* on +cut ' 'status shows the cut cable'
a heal n1 >/dev/null; is $? 0 heal
until_true 20 reach; ok $? 'a healed node is reachable'
a cut n3 >/dev/null; a kill n3 >/dev/null; like "$(a boot n3)" 'its cable is cut' 'a cut cable outlasts a boot'
a heal n3 >/dev/null
n3_idle() { a login sinfo -h -N -n n3 -o %T | grep -q '^idle'; }
until_true 60 n3_idle; ok $? 'and heals'

# --- down ---
all=$(members $A); [ "$(wc -l <<<"$all")" -gt 10 ]; ok $? 'the cluster has processes'
$V login --name $A sh -c 'touch $HOME/open; exec sleep 1000' 2>/dev/null & p=$!
until_true 10 test -e "$HOME_A/open"
a down >/dev/null 2>&1; is $? 0 down
wait $p; is $? 137 'a login that was open ends'
is "$(alive $all | wc -l)" 0 'no process is left'
[ ! -e "$VCLUSTER_STATE/$A" ]; ok $? 'no file is left'
got=$(a down 2>&1); is "$? $got" "0 vcluster: no cluster $A: nothing to do" 'down of nothing'
is "$($V login --name $B srun -N2 hostname | sort | xargs)" 'n0 n1' 'the other cluster goes on'

# --- failed, interrupted, killed ---
got=$($V up --name $C --nodes 2 --conf NoSuchKey=1 2>&1); is $? 1 'up fails on a bad slurm.conf'
like "$got" 'Parsing error at unrecognized key: NoSuchKey' 'and shows the log'
like "$got" 'missing: n0 n1' 'and names the missing nodes'
[ ! -e "$VCLUSTER_STATE/$C" ] && no_carriers $C; ok $? 'and leaves nothing'
got=$($V up --name $C --nodes 2 --conf SlurmdSpoolDir=/proc/no --wait 3 2>&1); is $? 1 'up fails when no node registers'
[ ! -e "$VCLUSTER_STATE/$C" ] && no_carriers $C; ok $? 'and leaves nothing'
nothing_left() { [ ! -e "$VCLUSTER_STATE/$C" ] && no_carriers $C; }
for delay in 0.05 0.2 0.6; do
    setsid perl -e '$SIG{INT}="DEFAULT"; exec @ARGV' $V up --name $C --nodes 16 >/dev/null 2>&1 & p=$!
    sleep $delay; kill -INT -$p 2>/dev/null; wait $p; rc=$?
    [ $rc != 0 ] || $V down --name $C >/dev/null 2>&1 # it was up before the Ctrl-C came
    # what the interrupted `up` had just forked dies with it, a moment later
    until_true 10 nothing_left; ok $? "Ctrl-C after $delay s leaves nothing (exit code $rc)"
done
for delay in 0.03 0.08 0.12 0.2 0.4 0.8; do
    $V up --name $C --nodes 3 >/dev/null 2>&1 & p=$!
    sleep $delay; kill -KILL $p 2>/dev/null; wait $p 2>/dev/null
    $V down --name $C >/dev/null 2>&1; rc=$?
    [ $rc = 0 ] && [ ! -e "$VCLUSTER_STATE/$C" ] && until_true 5 no_carriers $C
    ok $? "kill -9 after $delay s: down removes what is left" "down: $rc; $(ls -R "$VCLUSTER_STATE/$C" 2>/dev/null); $(for p in $(carriers $C); do ps -o pid,ppid,stat,args -p "$p"; done)"
done
$V up --name $C --nodes 2 >/dev/null 2>&1; is $? 0 'the name can be used again'
pid=$(jq .pid "$VCLUSTER_STATE/$C/m/switch/init.json"); all=$(members $C); kill -KILL "$pid"
none_alive() { [ -z "$(alive $all)" ]; }
until_true 10 none_alive; ok $? 'all dies with the switch'
got=$($V status --name $C 2>&1); like "$? $got" "^3 .* is gone, its leftovers" 'status says so'
# A record whose pid now belongs to somebody else must not hurt him.
sleep 1000 & p=$!
jq ".pid=$p" "$VCLUSTER_STATE/$C/m/switch/init.json" >"$VCLUSTER_STATE/x"; mv "$VCLUSTER_STATE/x" "$VCLUSTER_STATE/$C/m/switch/init.json"
$V down --name $C >/dev/null; is $? 0 'down of the leftovers'
kill -0 $p; ok $? 'no foreign process is killed'; kill $p; wait $p 2>/dev/null
$V down --name $B >/dev/null; is $? 0 'down of the second cluster'
[ ! -e "$VCLUSTER_STATE" ]; ok $? 'the state folder is gone'
is "$(outside)" "$before" 'outside everything is as it was'
echo "1..$n"
exit $failed
