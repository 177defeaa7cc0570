from simdist.cluster import Link


def test_a_message_takes_alpha_and_n_beta():
    assert Link(latency_s=2.0, bytes_per_s=4.0).seconds(8) == 4.0
    assert Link(latency_s=2.0, bytes_per_s=4.0).seconds(0) == 2.0
