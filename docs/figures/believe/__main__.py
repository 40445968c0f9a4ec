"""Audit maps of data with a known distribution, and compare what the audits state with maps of further samples.

`make believe` measures maps by PCA and LLE of the distributions in `unseen`. Of those in `COMPARED` it also measures
maps by UMAP and t-SNE, and compares the audit's scores of points with the scores of other tools. The file of `--keep`
has a JSON line for each distribution and method; these are not measured again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from docs.figures.believe.measure import Row, measure
from docs.figures.believe.peers import INSTALL, PEERS, is_installed
from docs.figures.believe.table import draw_picture, peer_table, print_goals
from docs.figures.believe.unseen import COMPARED, UNSEEN

DISTRIBUTIONS = {"pca": UNSEEN, "glle": UNSEEN, "umap": COMPARED, "t-sne": COMPARED[:7]}  # t-SNE takes two minutes each


def main() -> None:
    """Measure maps of the distributions, and print how well the audits and the other tools did."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.believe", description=__doc__)
    parser.add_argument("--methods", nargs="+", default=list(DISTRIBUTIONS), choices=list(DISTRIBUTIONS))
    parser.add_argument("--keep", type=Path, default=Path("out/believe.jsonl"))
    parser.add_argument("--write", action="store_true", help="draw the picture of the page")
    options = parser.parse_args()
    for peer in PEERS:
        if not is_installed(peer):
            print(f"{peer} is left out, because it is not installed: {INSTALL}")
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    lines = options.keep.read_text(encoding="utf-8").splitlines() if options.keep.exists() else []
    kept: dict[tuple[str, str], Row] = {(row["distribution"], row["method"]): row for row in map(json.loads, lines)}
    compared: dict[str, list[Row]] = {}
    for method in options.methods:
        rows = []
        for distribution in DISTRIBUTIONS[method]:
            if (row := kept.get((distribution.name, method))) is None:
                row = measure(distribution, method, with_peers=distribution in COMPARED and not distribution.is_noise)
                with options.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            rows.append(row)
        print_goals(method, rows)
        compared[method] = [row for row in rows if "peers" in row]
    print(peer_table(compared))
    if options.write:
        draw_picture(compared)


if __name__ == "__main__":
    main()
