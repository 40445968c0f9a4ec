#!/bin/sh
# Copy the data of a running or stopped service: backup.sh DATA_FOLDER EMPTY_FOLDER
#
# First the log of the queue's Redis, which has all records, keys and jobs. Then the files, which never change, so that
# the later copy has all that the records name. The copy of the log is repeated if the server has rewritten it meanwhile,
# which its manifest shows. The mark beside the files says how many changes of records there were, so it is copied before
# the log. With GLLE_STORE_URL copy the log alone, and the bucket by its own tools afterwards.
set -eu
data=$1 copy=$2 log=queue/appendonlydir manifest=appendonly.aof.manifest mark=objects/data/mark
mkdir -p "$copy/queue"
[ ! -d "$data/$mark" ] || cp -Rp "$data/$mark" "$copy/mark"
while
    rm -rf "$copy/$log" && mkdir "$copy/$log"
    cp "$data/$log/$manifest" "$copy/manifest"
    ! cp -p "$data/$log/"* "$copy/$log/" || ! cmp -s "$copy/manifest" "$data/$log/$manifest"
do sleep 1; done
rm "$copy/manifest"
if [ -d "$data/objects" ]; then
    cp -Rp "$data/objects" "$copy/objects"
    rm -rf "$copy/$mark"
    [ ! -d "$copy/mark" ] || mv "$copy/mark" "$copy/$mark"
fi
