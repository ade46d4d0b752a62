#!/bin/sh
# The whole key ceremony on one machine, into a folder: sh ceremony.sh FOLDER
# Between organisations each does its own part; README.md says who does what. A rehearsal protects nobody: one machine
# holds every key, and nobody compares words by telephone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/settings.sh"
mkdir -p "$1" && cd "$1"

echo "== Every organisation has its own records"
for organisation in $ORGANISATIONS; do
    mkdir -p "$organisation/records" "$organisation/keys"
    chmod 700 "$organisation/keys"
    cp "$here/records.py" "$organisation/"
done
take() { # hospital in the made-up table, owner, organisation
    {
        echo owner,age,bmi,pressure,glucose,smoker,readmitted,days
        sed -n "s/^$1,/$2,/p" "$here/../hospitals.csv"
    } > "$3/records/records.csv"
}
take north north-hospital north
take south south-hospital south
take centre laboratory laboratory

echo "== 1. Every organisation makes keys for its parties, and hands out the cards"
port=$PORT
mkdir -p cards
for party in $HOSTS; do
    $CROUPIER keygen "$party" --address "127.0.0.1:$port" --out "$(home "$party")/keys/$party" > /dev/null
    port=$((port + 1))
done
for party in $CLIENTS; do
    $CROUPIER keygen "$party" --out "$(home "$party")/keys/$party" > /dev/null
done
for party in $HOSTS $CLIENTS; do
    cp "$(home "$party")/keys/$party/$party.card" cards/
done

echo "== 2. One of them, here the laboratory, makes the roster"
(cd laboratory && $CROUPIER enrol ../cards/*.card --spec "$here/federation.toml" --data records \
    --phase 30 --round-limit 120 --hold 5 --out ../federation.roster) > enrolled.txt
words=$(sed -n 's/^words: //p' enrolled.txt)

echo "== 3. Everybody compares the six words, and accepts: $words"
for party in $HOSTS $CLIENTS; do
    # shellcheck disable=SC2086
    $CROUPIER accept federation.roster --key "$(key "$party")" --yes $words --out "cards/$party.accepted" > /dev/null
done
$CROUPIER accept federation.roster cards/*.accepted

echo "== 4. One client draws the clients' secret, the others open its file"
$CROUPIER group --key "$(key north-hospital)" --roster federation.roster > /dev/null
for party in south-hospital laboratory; do
    $CROUPIER group --key "$(key "$party")" --open group.sealed > /dev/null
done
