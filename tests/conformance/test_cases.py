"""Every case of the table, for every transport: `test_case[curl-closed after 103]`.

All variants of a case (http and TLS, fresh and reused connection, sizes of body) are one test, whose failure names
those that are wrong. They run many at once, when the first of them is asked for.
"""

from __future__ import annotations

import pytest

from tests.conformance.cases import Case, every_case
from tests.conformance.conftest import Examined
from tests.conformance.subjects import SUBJECTS


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", every_case(), ids=lambda case: case.name)
@pytest.mark.parametrize("transport", SUBJECTS)
def test_case(examined: Examined, transport: str, case: Case) -> None:
    wrong = examined[transport][case.name]
    assert not wrong, "\n".join(wrong)


def test_every_difference_between_the_transports_has_a_reason() -> None:
    for case in every_case():
        for transport, difference in case.differs.items():
            assert transport in SUBJECTS
            assert (difference.expect, difference.body) != (case.expect, None), f"{case.name} does not differ"
            assert len(difference.reason) > 20, case.name
