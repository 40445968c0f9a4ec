#!/bin/sh
# Copy the data of a running or stopped service: backup.sh DATA_FOLDER EMPTY_FOLDER
#
# First the log of the queue's Redis, which has all records, keys and jobs. Then the files, which never change, so that
# the later copy has all that the records name. The copy of the log is repeated if the server has rewritten it meanwhile,
# which its manifest shows. The mark beside the files says how many changes of records there were, so it is copied before
# the log. Symbolic links are followed, so that the copy has everything. With GLLE_STORE_URL copy the log alone, and the
# bucket by its own tools afterwards.
set -eu
data=$1 copy=$2 log=queue/appendonlydir manifest=appendonly.aof.manifest mark=objects/data/mark
fail() { echo "backup.sh: $1" >&2; exit 1; }
[ -f "$data/$log/$manifest" ] || fail "$data/$log has no $manifest: name a data folder of glle up, or see docs/how-to/storage.md."
[ ! -L "$data/objects" ] || [ -d "$data/objects" ] || fail "$data/objects is a link to nothing."
mkdir -p "$copy/queue"
[ ! -d "$data/$mark" ] || cp -RLp "$data/$mark" "$copy/mark"
while
    rm -rf "$copy/$log" && mkdir "$copy/$log"
    cp "$data/$log/$manifest" "$copy/manifest"
    ! cp -p "$data/$log/"* "$copy/$log/" || ! cmp -s "$copy/manifest" "$data/$log/$manifest"
do sleep 1; done
rm "$copy/manifest"
if [ -d "$data/objects" ]; then
    cp -RLp "$data/objects" "$copy/objects"
    rm -rf "$copy/$mark"
    [ ! -d "$copy/mark" ] || mv "$copy/mark" "$copy/$mark"
fi
