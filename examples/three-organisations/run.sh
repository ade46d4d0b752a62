#!/bin/sh
# Every party of a folder that ceremony.sh made, as a process of its own on this machine: sh run.sh FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/settings.sh"
cd "$1"
top=$(pwd)
pids=""
trap 'kill $pids 2> /dev/null || true' EXIT INT TERM

for party in $HOSTS; do
    cd "$top/$(home "$party")"
    if [ "$party" = server ]; then
        $CROUPIER serve server --key "$top/$(key server)" --data records --out results 2> "$party.log" &
    else
        $CROUPIER serve "$party" --key "$top/$(key "$party")" 2> "$party.log" &
    fi
    pids="$pids $!"
done
for party in $CLIENTS; do
    cd "$top/$(home "$party")"
    $CROUPIER join --key "$top/$(key "$party")" --data records --keep-view 2> "$party.log" &
    pids="$pids $!"
done

failed=0
for pid in $pids; do
    wait "$pid" || failed=$?
done
trap - EXIT
cat "$top/laboratory/results/summary.json"
exit "$failed"
