"""Who measures the links with whom; what comes of it is tested where a cluster is found again from it."""

from simdist.comm.ping_pong import partners
from simdist.comm.placement import Placement


def test_each_rank_has_a_partner_on_its_node_and_one_on_the_next():
    assert [partners(Placement([0, 0, 0, 1, 1]), rank) for rank in range(5)] == [
        *[(1, 3), (0, 4), (None, None)],
        *[(4, 0), (3, 1)],
    ]


def test_ranks_placed_in_turn_have_partners_too():
    assert [partners(Placement([0, 1, 0, 1, 0]), rank) for rank in range(5)] == [
        *[(2, 1), (3, 0), (0, 3), (1, 2)],
        (None, None),
    ]
