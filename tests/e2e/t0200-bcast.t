#!/bin/bash
# t0200-bcast.t - weights go from one pack to every rank of a real MPI world: whole, once, and past deaths.
# Ranks, racks and the pack are artificial (tests/tools/mpi_bcast_tool.c); MPI, its detach and the kills are real.
set -u
out=${EXASERVE_OUT:-build/release}
tool=$out/tests/tools/mpi_bcast_tool
# sanitizer builds: MPI and UCX are not built with them (tests/tools/*.supp)
export UCX_HANDLE_ERRORS=none UCX_MEM_MMAP_HOOK_MODE=none UCX_MEM_EVENTS=n
# nor may Open MPI write its hooks over the sanitizers' own
slow=1
case $out in *asan* | *tsan*) export OMPI_MCA_memory=^patcher slow=2 ;; esac
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/tests/tools/tsan.supp:ignore_noninstrumented_modules=1}
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/exa-bcast.XXXXXX")
mpirun_pid=
cleanup() {
    [ -n "$mpirun_pid" ] && kill "$mpirun_pid" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

n_test=0
ok() { # RESULT NAME
    n_test=$((n_test + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n_test - $2"
    else
        echo "not ok $n_test - $2"
        cat "$work"/*/result.* "$work"/*.log 2>/dev/null | sed 's/^/# /' | cut -c1-300
    fi
}

[ -x "$tool" ] || make -s "$tool" || { echo "Bail out! $tool does not build"; exit 1; }
mkdir "$work/pack"
"$tool" make "$work/pack" 16 > "$work/made" || { echo "Bail out! no pack"; exit 1; }
bytes=$(awk '{print $4}' "$work/made")
segments=$(awk '{print $2}' "$work/made")

# run NAME [OPTIONS]: one world of 6 ranks; its results stay in $work/now
run() {
    local name=$1
    shift
    rm -rf "$work/now" "$work"/*.log
    mkdir "$work/now"
    ln "$work/pack/pack" "$work/pack/index" "$work/now/"
    mpirun --oversubscribe --enable-recovery --bind-to none -n 6 \
        timeout -k 5 90 "$tool" run "$work/now" "$@" > "$work/$name.log" 2>&1 &
    mpirun_pid=$!
    wait "$mpirun_pid"
    mpirun_pid=
}
lines() { cat "$work"/now/result.* | grep -c -- "$1"; } # how many result lines match
sum() { # ROUND FIELD: over all ranks
    cat "$work"/now/result.* | awk -v r="$1" -v f="$2" '$1 == "round" && $2 == r {
        for (i = 3; i < NF; i++) if ($i == f) s += $(i + 1) } END { print s + 0 }'
}
images_equal() { # N: so many images, all the same bytes
    [ "$(find "$work/now" -name image -type f | wc -l)" = "$1" ] &&
        [ "$(find "$work/now" -name image -type f -exec sha256sum {} + | awk '{print $1}' | sort -u | wc -l)" = 1 ]
}
is() { [ "$1" = "$2" ] || { echo "# found '$1', expected '$2'"; return 1; }; }

# everything is missing everywhere
run plain --racks 0,0,0,1,1,1 --repeat
ok "$(is "$(lines 'image GOOD')" 6 && images_equal 6; echo $? | tail -1)" 'every rank has the whole image'
ok "$(is "$(sum 1 read)" "$bytes" >&2; echo $?)" 'each byte was read once'
ok "$(is "$(sum 1 received)" $((5 * bytes)) >&2; echo $?)" 'each other rank received each byte once'
ok "$(is "$(lines 'round 2 rc OK')" 6 >&2; echo $?)" 'a second round of the same world forwards everything again'

# other shapes
for racks in 0,0,0,0,0,0 0,1,2,3,4,5 7,7,7,7,7,3; do
    run shape --racks $racks
    ok "$(is "$(lines 'image GOOD')" 6 >&2 && is "$(sum 1 read)" "$bytes" >&2; echo $?)" "racks $racks"
done

# without communicators, as after a death
run relay --racks 0,0,1,1,2,2 --relay
ok "$(is "$(lines 'image GOOD')" 6 >&2 && images_equal 6; echo $?)" 'relayed: every rank has the whole image'
ok "$(is "$(sum 1 read)" "$bytes" >&2; echo $?)" 'relayed: each byte was read once'

# have-bits
run partial --racks 0,0,1,1,2,2 --partial --full 3
missing=$(awk '/^round 1/ {print $6}' "$work/now/result.0")
ok "$([ "$missing" -gt 0 ] && [ "$missing" -lt "$bytes" ]; echo $?)" 'what every rank holds is not in the round'
ok "$(is "$(sum 1 read)" "$missing" >&2; echo $?)" 'what is missing somewhere was read once'
ok "$(is "$(lines 'image GOOD')" 6 >&2; echo $?)" 'partial images are finished, and the full rank forwarded'

# a wrong hash in the pack
cp "$work/pack/pack" "$work/bad"
printf 'XX' | dd of="$work/bad" bs=1 seek=30000000 conv=notrunc 2> /dev/null
run hash --racks 0,0,1,1,2,2 --rounds 1 --pack "$work/bad"
ok "$(is "$(lines 'rc FORMAT')" 6 >&2; echo $?)" 'a wrong hash: one verdict on all ranks'
ok "$(is "$(lines 'tensor blk.3.weight, segment 5 .*hash')" 6 >&2; echo $?)" 'which names tensor and segment'
ok "$(is "$(lines "have $((segments - 1)) of $segments")" 6 >&2; echo $?)" 'and all other segments arrived'

# no pack, a cut one, a file system that hangs
run none --racks 0,0,1,1,2,2 --rounds 1 --pack "$work/none"
ok "$(is "$(lines 'rc SYS .*/none.*No such file')" 6 >&2; echo $?)" 'a missing pack is named on all ranks'
ok "$(is "$(lines 'mine 1')" 3 >&2; echo $?)" 'and those that could not read it know that it is their own trouble'
head -c 40000000 "$work/pack/pack" > "$work/cut"
run cut --racks 0,0,1,1,2,2 --rounds 1 --pack "$work/cut"
ok "$(is "$(lines 'rc FORMAT .*the file ends')" 6 >&2; echo $?)" 'a cut pack is named on all ranks'
mkfifo "$work/fifo"
run hang --racks 0,0,1,1,2,2 --rounds 1 --stall $((6000 * slow)) --pack "$work/fifo"
ok "$(is "$(lines 'rc TIMEOUT .*/fifo.*no read returned')" 6 >&2; echo $?)" 'a read that hangs ends the round with its name'

# a member dies, a leader dies, the first leader dies, and one right at the start; the others meet again and finish
kill_test() { # VICTIM WHERE
    run kill --racks 0,0,1,1,2,2 --stall $((5000 * slow)) --rounds 5 --kill "$1"
    rm -rf "$work/now/result.${1%:*}" "$work/now/cache.${1%:*}"
    ok "$([ "$(lines 'round 1 rc PEER')" -gt 0 ] && is "$(lines 'image GOOD')" 5 >&2 && images_equal 5; echo $?)" \
        "survivors notice and finish after kill $1${2-}"
}
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp # as ranks are started (ranks/start.c), and as between nodes
for victim in 5:9 2:3 0:5 4:0; do
    kill_test $victim
    # mpi/shield.c: each of five survivors meets the break once. One that stays broken would be asked at every turn.
    broken=$(grep -c 'connection broke' "$work/kill.log")
    ok "$([ "$broken" -ge 5 ] && [ "$broken" -le 60 ]; echo $?)" "and each sees its connection break once ($broken)"
done
unset OMPI_MCA_pml OMPI_MCA_btl
# UCX reports a dead peer as an error inside a collective that goes on sending: other ways through the code
export OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any UCX_TLS=tcp,self
for victim in 4:0 0:5; do kill_test $victim ' over UCX'; done
unset OMPI_MCA_pml OMPI_MCA_pml_ucx_tls OMPI_MCA_pml_ucx_devices UCX_TLS

# somebody does not come to a round
run absent --racks 0,0,1,1,2,2 --stall $((5000 * slow)) --absent 3
ok "$(is "$(lines 'round 1 rc PEER .*rank 3')" 5 >&2; echo $?)" 'a rank that does not come is named'
ok "$(is "$(lines 'image GOOD')" 6 >&2; echo $?)" 'the next round with it works'
run host --racks 0,0,1,1,2,2 --stall $((5000 * slow)) --absent 0
ok "$(is "$(lines 'round 1 rc PEER .*no answer from rank 0')" 5 >&2 && is "$(lines 'image GOOD')" 6 >&2; echo $?)" \
    'the first rank that does not come is named, and the next round works'

echo "1..$n_test"
