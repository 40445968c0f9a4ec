#!/bin/sh
# Copy the data of a running or stopped service: backup.sh DATA_FOLDER EMPTY_FOLDER
#
# First the log of the queue's Redis, which has all records, keys and jobs. Then the files, which never change, so that
# the later copy has all that the records name. The copy of the log is repeated if the server has rewritten it meanwhile,
# which its manifest shows. With GLLE_STORE_URL copy the log alone, and the bucket by its own tools afterwards.
set -eu
data=$1 copy=$2 log=queue/appendonlydir manifest=appendonly.aof.manifest
mkdir -p "$copy/queue"
while
    rm -rf "$copy/$log" && mkdir "$copy/$log"
    cp "$data/$log/$manifest" "$copy/manifest"
    ! cp -p "$data/$log/"* "$copy/$log/" || ! cmp -s "$copy/manifest" "$data/$log/$manifest"
do sleep 1; done
rm "$copy/manifest"
[ ! -d "$data/objects" ] || cp -Rp "$data/objects" "$copy/objects"
