"""A small run against the parsers, in this process; `make -C qa hostile` is the large run, in a separate process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qa.inputs.hostile.bodies.mutations import good, mutant, query_of
from qa.inputs.hostile.case import KINDS, faults
from qa.inputs.hostile.run import ATTACKS, Service

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with small caps and an empty folder."""
    with Service(tmp_path_factory.mktemp("hostile")) as made:
        yield made


@pytest.mark.parametrize("reader", KINDS)
@pytest.mark.filterwarnings("ignore")  # warnings of numpy's header parser
def test_handmade_bodies_are_refused(service: Service, reader: str) -> None:
    """Each body gets a problem in bounded time and memory, and leaves no file; the next valid upload succeeds."""
    attacks = [attack for attack in ATTACKS if attack.reader == reader and not attack.is_slow]
    assert len(attacks) > 20
    bad = {
        attack.name: problems
        for attack in attacks
        if (problems := faults(service.upload(reader, attack.build(), attack.query), is_accepted=attack.is_accepted))
    }
    assert bad == {}
    assert service.accepts_a_valid_upload()


@pytest.mark.parametrize("reader", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_mutated_bodies_are_tables_or_problems(service: Service, reader: str) -> None:
    """Valid bodies are accepted; any mutation gives a table or a client problem."""
    assert [service.upload(reader, body).status for body in good(reader)[:1]] == [201]

    mutants = [mutant("tests", reader, number) for number in range(15)]
    assert [faults(service.upload(reader, body, query_of(reader, body))) for body in mutants] == [[]] * 15
