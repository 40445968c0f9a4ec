"""Audit maps of every law, and compare each statement with other samples, and scores of points with peers.

`make believe` measures PCA and LLE of all laws, and UMAP and t-SNE of some of the laws `COMPARED`. The file of
`--keep` keeps the figures as JSON lines, and rows that it has already are not measured again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from docs.figures.believe.laws import KNOWN, Law
from docs.figures.believe.measure import Row, measure
from docs.figures.believe.peers import INSTALL, PEERS, is_installed
from docs.figures.believe.table import draw_picture, peer_table, print_goals
from docs.figures.believe.trial import TRIAL
from docs.figures.believe.unseen import COMPARED, UNSEEN

GROUPS: dict[str, dict[str, tuple[Law, ...]]] = {  # laws of each method
    "known": {"pca": KNOWN, "glle": KNOWN},
    "unseen": {"pca": UNSEEN, "glle": UNSEEN},
    "trial": {"pca": TRIAL, "glle": TRIAL},
    "compared": {"pca": COMPARED, "glle": COMPARED, "umap": COMPARED, "t-sne": COMPARED[:7]},  # two minutes a law
}


def main() -> None:
    """Measure the laws and methods of each group, and print the goals and the figures of peers."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.believe", description=__doc__)
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=list(GROUPS), help="of laws")
    parser.add_argument("--methods", nargs="+", help="only these; default: the methods of each group")
    parser.add_argument("--keep", type=Path, default=Path("out/believe.jsonl"))
    parser.add_argument("--write", action="store_true", help="draw the picture of the page")
    options = parser.parse_args()
    for peer in PEERS:
        if not is_installed(peer):
            print(f"{peer} is left out, because it is not installed: {INSTALL}")
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    lines = options.keep.read_text(encoding="utf-8").splitlines() if options.keep.exists() else []
    kept: dict[tuple[str, str], Row] = {(row["law"], row["method"]): row for row in map(json.loads, lines)}
    for group in options.groups:
        compared: dict[str, list[Row]] = {}
        for method, laws in GROUPS[group].items():
            if options.methods and method not in options.methods:
                continue
            rows = []
            for law in laws:
                if (row := kept.get((law.name, method))) is None:
                    row = measure(law, method, with_peers=law in COMPARED and not law.is_noise)
                    kept[law.name, method] = row
                    with options.keep.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                rows.append(row)
            print_goals(f"{group} laws, {method}", rows)
            compared[method] = [row for row in rows if "peers" in row]
        if group == "compared":
            print(peer_table(compared))
            if options.write:
                draw_picture(compared)


if __name__ == "__main__":
    main()
