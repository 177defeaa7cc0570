"""The best sizes of models: Chinchilla's own figures, and that no other size is better."""

import pytest

from simdist.errors import ArgumentError
from simdist.nn.formulas import (
    LossLaw,
    deepseek_best,
    kaplan_best,
    kaplan_loss,
    kaplan_steps_loss,
    megatron_flops,
    repeated_tokens,
    step_law,
    training_flops,
)

AGAIN = LossLaw(1.8172, 482.01, 2085.43, 0.3478, 0.3658)  # arXiv 2404.10102


@pytest.mark.parametrize("law", [LossLaw(), AGAIN])
@pytest.mark.parametrize("flops", [1e18, 5.76e23])
def test_no_other_size_of_the_same_operations_is_better(law, flops):
    n, d = law.best(flops)
    assert training_flops(n, d) == pytest.approx(flops)
    for times in (0.5, 0.99, 1.01, 2):
        assert law.loss(n * times, d / times) > law.loss(n, d)


def test_with_more_operations_models_grow_as_in_the_paper():
    """arXiv 2203.15556, table 2: N as C^0.46 and D as C^0.54 by the third approach, whose constants are rounded."""
    (n, d), (more_n, more_d) = LossLaw().best(1e20), LossLaw().best(1e22)
    assert more_n / n == pytest.approx(100**0.46, rel=0.05)
    assert more_d / d == pytest.approx(100**0.54, rel=0.05)


@pytest.mark.parametrize(
    ("law", "billions"),
    [
        (LossLaw(1.6934, 406.4, 410.7, 0.3392, 0.2849), 40),  # in the paper, figure 4
        (AGAIN, 70),  # nearly Chinchilla itself
        (LossLaw(), 32.2),  # of rounded constants, neither
    ],
)
def test_the_best_model_for_gophers_operations(law, billions):
    assert law.best(5.76e23)[0] == pytest.approx(billions * 1e9, rel=0.05)


@pytest.mark.parametrize(
    ("billions", "trillions"),
    [(0.4, 0.0092), (1, 0.0271), (10, 0.4101), (67, 4.1), (175, 12), (280, 20.1), (520, 43.5), (1000, 94.1)],
)
def test_the_tokens_that_models_should_be_trained_on(billions, trillions):
    """arXiv 2203.15556, table A3, by the third approach: of more digits than the paper prints."""
    tokens = LossLaw(1.6934, 406.4, 410.7, 0.3392, 0.2849).best_tokens(billions * 1e9)
    assert tokens / 1e12 == pytest.approx(trillions, rel=0.2)
    for law in (LossLaw(), AGAIN):
        n, d = billions * 1e9, law.best_tokens(billions * 1e9)
        assert law.best(training_flops(n, d)) == pytest.approx((n, d))


def test_twenty_tokens_a_parameter():
    """Chinchilla's rule, as arXiv 2404.10102 finds it again; by the constants as printed many more."""
    assert AGAIN.best_tokens(70e9) == pytest.approx(1.4e12, rel=0.1)
    assert LossLaw().best_tokens(70e9) > 7e12


def test_a_smaller_model_that_is_trained_for_longer():
    """arXiv 2401.00448, figure 1: of 13 billion parameters, used for two trillion tokens, 7 billion of the same loss
    save 1.7e22 operations, 17%. Its constants have three digits.
    """
    law, used = LossLaw(1.69, 406.4, 410.7, 0.336, 0.283), 2e12
    loss = law.loss(13e9, law.best_tokens(13e9))
    large, small = (6 * n * law.needed_tokens(n, loss) + 2 * n * used for n in (13e9, 7e9))
    assert large - small == pytest.approx(1.7e22, abs=0.05e22)
    assert 1 - small / large == pytest.approx(0.17, abs=0.005)
    assert law.loss(7e9, law.needed_tokens(7e9, loss)) == pytest.approx(loss, rel=1e-12)
    with pytest.raises(ArgumentError, match=r"loss is 2.*; needs more than 2.0"):
        law.needed_tokens(1e9, 2.0)


def test_the_laws_of_kaplan_et_al():
    """arXiv 2001.08361: 0.95 of the loss with twice the parameters, section 1.2; and 2% more than with data enough, if
    D = 5000 N^0.74, section 4.2.
    """
    assert kaplan_loss(2e9) / kaplan_loss(1e9) == pytest.approx(0.95, abs=0.002)
    assert kaplan_loss(1e9) == pytest.approx((8.8e13 / 1e9) ** 0.076, rel=1e-12)
    assert kaplan_loss(tokens=1e9) == pytest.approx((5.4e13 / 1e9) ** 0.095, rel=1e-12)
    fitted = {"model": 6.4e13, "data": 1.8e13, "data_exponent": 0.103}
    for n in (1e8, 1e9, 1e10):
        more = kaplan_loss(n, 5000 * n**0.74, **fitted) / kaplan_loss(n, **fitted)
        assert more == pytest.approx(1.02, abs=0.005)


def stopped(share, loss=2.5, alpha=0.077, beta=0.76):
    """N and S of a run to this loss whose second term is this share of the first."""
    return 6.5e13 / (loss / (1 + share)) ** (1 / alpha), 2.1e3 / (loss * share / (1 + share)) ** (1 / beta)


def test_runs_that_stop_early_by_kaplan_et_al():
    """Appendix B: 2.7 times the parameters, 7.7 times fewer steps, 65% fewer operations at 10% than at 2%; and no
    other share than α/β takes fewer.
    """
    (early, few), (late, many) = stopped(0.1), stopped(0.02)
    assert kaplan_steps_loss(early, few) == pytest.approx(2.5) == kaplan_steps_loss(late, many)
    assert early / late == pytest.approx(2.7, abs=0.05)
    assert many / few == pytest.approx(7.7, rel=0.03)
    assert 1 - early * few / (late * many) == pytest.approx(0.65, abs=0.01)
    work = {share: stopped(share)[0] * stopped(share)[1] for share in (0.02, 0.05, 0.077 / 0.76, 0.15, 0.3)}
    assert min(work, key=work.get) == 0.077 / 0.76
    assert kaplan_steps_loss(1e9, 1e12) == pytest.approx(kaplan_loss(1e9), rel=0.02)


def test_what_operations_are_best_spent_on_by_kaplan_et_al():
    """Figure 3: a billion times as much goes into a model more than a million times as large, a batch a hundred times
    as large, and less than ten times the steps. Section 6.3: at about 10,000 petaflop-days a trillion parameters and
    1.7 nats a token. And C = 6 N B S of one petaflop-day.
    """
    day = 86400e15
    small, large = kaplan_best(day), kaplan_best(1e9 * day)
    assert large.parameters / small.parameters > 1e6
    assert 100 < large.batch_tokens / small.batch_tokens < 200
    assert large.steps / small.steps < 10
    assert training_flops(small.parameters, small.batch_tokens * small.steps) == pytest.approx(day, rel=0.03)
    most = kaplan_best(1e4 * day)
    assert (most.loss, most.parameters) == (pytest.approx(1.7, abs=0.03), pytest.approx(1e12, rel=0.1))
    with pytest.raises(ArgumentError, match="flops is 0; needs more than 0"):
        kaplan_best(0)


@pytest.mark.parametrize(("layers", "width", "texts", "rate"), [(30, 4096, 2304, 4.2e-4), (95, 8192, 4608, 3.2e-4)])
def test_how_deepseek_7b_and_67b_were_trained(layers, width, texts, rate):
    """arXiv 2401.02954, table 2: two trillion tokens, in texts of 4096. The paper calls such batches near the best."""
    best = deepseek_best(2e12 * megatron_flops(layers, width, 0, 4096, 1 / 4096, "none"))
    assert best.batch_tokens == pytest.approx(4096 * texts, rel=0.1)
    assert best.learning_rate == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("flops", [1e17, 1e24])
def test_a_model_of_deepseeks_law_takes_all_operations(flops):
    best = deepseek_best(flops)
    assert best.flops_per_token * best.tokens == pytest.approx(flops, rel=0.001)
    with pytest.raises(ArgumentError, match="flops is 0; needs more than 0"):
        deepseek_best(0)


@pytest.mark.parametrize(
    ("parameters", "tokens", "batch_tokens", "rate"),
    [
        (46_006_272, 511_967_232, 65_536, 0.002762),
        (109_051_904, 1_023_934_464, 131_072, 0.001953),
        (368_050_176, 1_023_934_464, 131_072, 0.000977),
        (872_415_232, 1_023_934_464, 131_072, 0.000691),
        (46_006_272, 4_312_530_944, 262_144, 0.003906),
        (46_006_272, 2_156_134_400, 262_144, 0.003906),
        (872_415_232, 511_967_232, 131_072, 0.000691),
        (2_944_401_408, 127_991_808, 32_768, 0.000244),
    ],
)
def test_the_best_batches_and_rates_that_others_found(parameters, tokens, batch_tokens, rate):
    """The best of grids by powers of two, of other models and data: lucaslingle.substack.com, "Scaling laws for optimal
    LR and batch size"; of the last each parameter has seen a twentieth of a token.
    """
    found = step_law(parameters, tokens)
    assert 1 / 2.5 < found.batch_tokens / batch_tokens < 2.5
    assert 1 / 2.5 < found.learning_rate / rate < 2.5


def test_batches_by_step_law_grow_with_the_tokens_alone():
    small = step_law(1e9, 100e9)
    assert small == (pytest.approx(1.1e6, rel=0.01), pytest.approx(1.6e-3, rel=0.03))
    large = step_law(8e9, 100e9)
    assert large.batch_tokens == small.batch_tokens
    assert large.learning_rate == pytest.approx(small.learning_rate * 8**-0.713)
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(ArgumentError, match="is 0; needs more than 0"):
            step_law(*wrong)


def test_tokens_that_are_read_again():
    """arXiv 2305.16264, section 3: nearly as good as new for four epochs; after R* repetitions they are worth 1 - 1/e,
    and their worth ends at 1 + R* times the tokens.
    """
    assert repeated_tokens(100e9, 1) == 100e9
    assert repeated_tokens(100e9, 4) == pytest.approx(373e9, rel=0.002)
    assert LossLaw().loss(1e9, repeated_tokens(10e9, 4)) / LossLaw().loss(1e9, 40e9) < 1.005
    assert repeated_tokens(1, 1 + 15.39) == pytest.approx(1 + 15.39 * 0.632, rel=1e-3)
    assert repeated_tokens(1, 1e6) == pytest.approx(16.39)
    for wrong in ({"unique": 0}, {"epochs": 0.5}, {"decay": 0}):
        with pytest.raises(ArgumentError, match=f"{next(iter(wrong))} is"):
            repeated_tokens(**{"unique": 1, "epochs": 2, **wrong})


def test_numbers_that_mean_nothing():
    for wrong in ("parameters", "tokens", "model", "data", "model_exponent", "data_exponent"):
        with pytest.raises(ArgumentError, match=f"{wrong} is 0; needs more than 0"):
            kaplan_loss(**{wrong: 0})
    for wrong in ({"steps": 0}, {"least": 0}):
        with pytest.raises(ArgumentError, match=f"{next(iter(wrong))} is 0; needs more than 0"):
            kaplan_steps_loss(**{"parameters": 1, "steps": 1, **wrong})
    for made in (
        lambda: LossLaw().loss(0, 1),
        lambda: LossLaw().loss(1, 0),
        lambda: LossLaw().best(0),
        lambda: LossLaw().best_tokens(0),
    ):
        with pytest.raises(ArgumentError, match="is 0"):
            made()
    for wrong in ({"data_exponent": -1}, {"floor": -1}):
        with pytest.raises(ArgumentError, match=f"{next(iter(wrong))} is -1"):
            LossLaw(**wrong)
