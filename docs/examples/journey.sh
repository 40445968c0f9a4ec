#!/usr/bin/env bash
# The main job with curl: upload a table, fit, one draw, many draws. `make up` runs in another terminal.
set -euo pipefail

URL=${GLLE_URL:-http://127.0.0.1:8000}
SHEET=${1:-sheet.csv}

# Prints the response; prints the problem and ends if the service refuses.
ask() {
    local answer status
    answer=$(mktemp)
    status=$(curl --silent --show-error --retry 3 --output "$answer" --write-out '%{http_code}' \
        ${GLLE_KEY:+--header "Authorization: Bearer $GLLE_KEY"} "$@")
    if [ "$status" -ge 400 ]; then cat "$answer" >&2; exit 1; fi
    cat "$answer"
    rm "$answer"
}
member() { python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }

# Waits for a job's end by long polls.
follow() {
    local job
    while job=$(ask "$URL/v1/jobs/$1?wait=20"); do
        case $(member status <<<"$job") in
            succeeded) return ;;
            failed | cancelled) echo "$job" >&2; exit 1 ;;
        esac
    done
}

# 1. Upload. The id is the digest of the content: the same data is the same resource.
DATASET=$(ask --data-binary "@$SHEET" --header 'Content-Type: text/csv' "$URL/v1/datasets" | member id)
echo "data set   $DATASET"

# 2. Fit on a worker: 202 and a job, or an existing posterior at once.
FIT=$(ask --json "{\"dataset\": \"$DATASET\", \"n_neighbors\": 10}" "$URL/v1/posteriors")
if JOB=$(member kind <<<"$FIT" 2>/dev/null); then
    JOB=$(member id <<<"$FIT")
    follow "$JOB"
    POSTERIOR=$(member posterior <<<"$FIT")
else
    POSTERIOR=$(member id <<<"$FIT")
fi
echo "posterior  $POSTERIOR"

# 3. One draw, as an array. Draw 7 of seed 0 is the same bits today, tomorrow, alone or in a batch.
ask --header 'Accept: application/x-npy' "$URL/v1/posteriors/$POSTERIOR/draws/7?wait=30" > draw.npy

# 4. Eight draws at each of three scales: a job, then its result with shape (3, 8, n, 2).
JOB=$(ask --json '{"n_draws": 8, "scales": [0.1, 1, 10]}' "$URL/v1/posteriors/$POSTERIOR/draws" | member id)
follow "$JOB"
ask --header 'Accept: application/x-npy' "$URL/v1/jobs/$JOB/result" > draws.npy
echo "draws      draw.npy draws.npy"
