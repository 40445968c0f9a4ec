"""Catalog of the handmade bodies."""

from __future__ import annotations

from itertools import chain

from qa.inputs.hostile.bodies.npy import npy_attacks, npz_attacks
from qa.inputs.hostile.bodies.tables import arrow_attacks, parquet_attacks
from qa.inputs.hostile.bodies.text import csv_attacks, json_attacks

ATTACKS = list(chain(npy_attacks(), npz_attacks(), csv_attacks(), json_attacks(), arrow_attacks(), parquet_attacks()))
