"""The rule that makes a choice from what was measured, on made-up measurements."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spherelm import presets
from spherelm.config import RunConfig, TrainConfig
from spherelm.config_io import flatten, override, to_dict
from spherelm.measured.recommend import Recommendation, lowest, recommend, taken_over
from spherelm.measured.settings import CHOSEN, Setting, gather
from spherelm.model.config import ModelConfig

STEP = 65_536
LADDER = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
losses = st.floats(1.0, 9.0)


def a_run(millions: float = 92, **fields: Any) -> RunConfig:
    """A run of the study's size; `model__n_layers` is model.n_layers."""
    model = ModelConfig(d_model=512, n_layers=8, n_heads=8, context=4096)
    steps = round(millions * 1e6 / STEP)
    run = RunConfig(model=model, train=TrainConfig(steps=steps, batch_size=STEP // 4096))
    changes = {name.replace("__", "."): value for name, value in fields.items()}
    if changes.get("model.context"):
        changes["train.batch_size"] = STEP // changes["model.context"]
    return override(run, changes)


def made_up(*runs: tuple[RunConfig, float]) -> list[Setting]:
    return gather((run, "page", loss) for run, loss in runs)


def sweep(by_budget: Mapping[int, Mapping[float, float]], **fields: Any) -> list[Setting]:
    """Final losses by rate, at each number of millions of tokens."""
    return made_up(
        *(
            (a_run(millions, optim__lr=lr, **fields), loss)
            for millions, tried in by_budget.items()
            for lr, loss in tried.items()
        )
    )


def rate(run: RunConfig, settings: Sequence[Setting]) -> float:
    return recommend(run, (), settings).run.optim.lr


# --- the best of the rates tried -----------------------------------------------------------------


@given(st.lists(losses, min_size=3, max_size=3), st.floats(1.2, 4), st.floats(1.2, 4))
def test_the_parabola_is_that_of_a_plain_search(
    ends: list[float], below: float, above: float
) -> None:
    """Against a loop over the parabola through the three points."""
    middle, first, last = sorted(ends)
    assume(first - middle > 1e-3)
    xs = [math.log(1e-3) - math.log(below), math.log(1e-3), math.log(1e-3) + math.log(above)]
    ys = [first, middle, last]

    def parabola(x: float) -> float:
        return sum(
            ys[i] * math.prod((x - xs[j]) / (xs[i] - xs[j]) for j in range(3) if j != i)
            for i in range(3)
        )

    fine = [xs[0] + (xs[2] - xs[0]) * i / 4000 for i in range(4001)]
    wanted = min(fine, key=parabola)
    found = lowest([(math.exp(x), y) for x, y in zip(xs, ys, strict=True)])
    assert math.log(found) == pytest.approx(wanted, abs=(xs[2] - xs[0]) / 4000)


@given(st.dictionaries(st.sampled_from(LADDER), losses, min_size=1))
def test_it_is_the_best_rate_or_less_than_half_way_to_its_neighbour(
    tried: dict[float, float],
) -> None:
    rates = sorted(tried)
    best = min(rates, key=lambda lr: tried[lr])
    i, found = rates.index(best), lowest(tried.items())
    if i in (0, len(rates) - 1):
        assert found == best  # nothing is known beyond what was tried
    else:
        low, high = math.sqrt(rates[i - 1] * best), math.sqrt(best * rates[i + 1])
        assert low * (1 - 1e-9) <= found <= high * (1 + 1e-9)


def test_equal_losses_are_no_obstacle() -> None:
    assert lowest([(1e-3, 3.0), (2e-3, 3.0), (4e-3, 3.0)]) == 1e-3
    assert lowest([(1e-3, 4.0), (2e-3, 3.0), (4e-3, 3.0)]) == pytest.approx(math.sqrt(8e-6))
    assert lowest([(1e-3, 4.0), (2e-3, 3.0), (4e-3, 4.0)]) == pytest.approx(2e-3)


def test_seeds_are_compared_where_all_have_them() -> None:
    """The better rate has two more runs, from seeds that end higher with every rate."""
    runs = [(a_run(optim__lr=lr), loss) for lr, loss in ((4e-3, 3.5), (8e-3, 3.4))]
    runs += [(a_run(optim__lr=8e-3, train__seed=seed), 3.7) for seed in (1, 2)]
    assert rate(a_run(), made_up(*runs)) == 8e-3


# --- runs that diverged --------------------------------------------------------------------------


@given(
    st.dictionaries(st.sampled_from(LADDER), st.one_of(losses, st.just(math.inf)), min_size=1),
)
def test_what_diverged_is_never_chosen_nor_anything_beyond_it(tried: dict[float, float]) -> None:
    assume(any(map(math.isfinite, tried.values())))
    best = min(sorted(tried), key=lambda lr: tried[lr])
    found = rate(a_run(), sweep({92: tried}))
    for lr in (lr for lr, loss in tried.items() if math.isinf(loss)):
        assert (found < lr) == (best < lr)
        assert found != lr


def test_what_diverged_was_tried_and_is_told() -> None:
    settings = sweep({92: {2e-3: 3.5, 4e-3: 3.4, 8e-3: math.inf}})
    assert recommend(a_run(), (), settings).run.optim.lr == 4e-3
    words = "0.004 at 92M tokens (tried: 0.002, 0.004; diverged: 0.008);"
    assert words in told(recommend(a_run(), (), settings))  # not: the best may lie above
    below = sweep({92: {4e-3: 3.4, 8e-3: math.inf}})
    words = "(tried: 0.004; diverged: 0.008; the best may lie below)"
    assert words in told(recommend(a_run(), (), below))


def test_one_seed_that_diverged_is_enough() -> None:
    """Also one that the other settings do not have."""
    runs = [(a_run(optim__lr=lr), loss) for lr, loss in ((4e-3, 3.5), (8e-3, 3.4))]
    runs.append((a_run(optim__lr=8e-3, train__seed=1), math.inf))
    assert rate(a_run(), made_up(*runs)) == 4e-3


def test_what_diverged_does_not_choose_the_seeds_that_others_are_compared_on() -> None:
    """Of its one seed the worse rate is the better one."""
    tried = {4e-3: (3.5, 3.3), 8e-3: (3.45, 3.45), 1.6e-2: (math.inf,)}
    runs = [
        (a_run(optim__lr=lr, train__seed=seed), loss)
        for lr, ends in tried.items()
        for seed, loss in enumerate(ends)
    ]
    assert rate(a_run(), made_up(*runs)) == 4e-3


def test_where_all_runs_diverged_others_are_looked_at() -> None:
    """Another number of tokens, schedule, size or kind."""
    settings = sweep({46: {4e-3: 4.0}, 92: {8e-3: math.inf}})
    settings += sweep({92: {1.6e-2: math.inf}}, optim__schedule="wsd")
    settings += sweep({92: {1.6e-2: math.inf}}, model__n_layers=16)
    settings += sweep({92: {1.6e-2: math.inf}}, optim__algorithm="muon")
    assert rate(a_run(92), settings) == 4e-3
    assert rate(a_run(model__n_layers=16), settings) == 4e-3
    assert rate(a_run(optim__algorithm="muon"), settings) == 4e-3
    wsd = recommend(a_run(optim__schedule="wsd"), {"optim.schedule"}, settings)
    assert (wsd.run.optim.schedule, wsd.run.optim.lr) == ("wsd", 4e-3)


def test_pairs_of_muon_that_diverged_are_counted() -> None:
    muon: dict[str, Any] = {"optim__algorithm": "muon", "optim__lr": 8e-3}
    runs = [(a_run(optim__muon_lr=lr, **muon), y) for lr, y in ((4e-3, 3.5), (1.6e-2, math.inf))]
    made = recommend(a_run(optim__algorithm="muon"), (), made_up((a_run(**muon), 3.6), *runs))
    assert made.run.optim.muon_lr == 4e-3
    assert "(best of 3 pairs tried, 1 of which diverged)" in told(made)


def test_rates_of_kinds_follow_the_rate() -> None:
    """As shares of it, but for a tied matrix: it is not the E_input they were tried with."""
    own = {"optim__input_lr": 4e-3, "optim__output_lr": 1e-3, "optim__factor_lr": 5e-4}
    settings = made_up((a_run(optim__lr=2e-3), 3.7), (a_run(optim__lr=2e-3, **own), 3.6))
    settings += sweep({184: {1e-3: 3.4, 2e-3: 3.5}}, optim__input_lr=None)
    found = recommend(a_run(92), (), settings).run.optim
    rates = (found.lr, found.input_lr, found.output_lr, found.factor_lr)
    assert rates == pytest.approx((2e-3, 4e-3, 1e-3, 5e-4))
    found = recommend(a_run(92), {"optim.input_lr"}, settings).run.optim
    assert found.input_lr is None, "whatever is given stays"
    tied = recommend(a_run(92, model__tie_embeddings=True), (), settings).run.optim
    assert (tied.input_lr, tied.output_lr) == (None, None)
    assert tied.factor_lr == pytest.approx(5e-4)
    alike = made_up((a_run(optim__input_lr=16e-3, model__tie_embeddings=True), 3.5))
    tied = recommend(a_run(92, model__tie_embeddings=True), (), alike).run.optim
    assert tied.input_lr == pytest.approx(16e-3)
    assert recommend(a_run(92), (), alike).run.optim.input_lr is None
    assert recommend(a_run(184), (), settings).run.optim.input_lr is None


def test_shares_are_of_the_rate_that_is_given() -> None:
    own = {"optim__input_lr": 8e-3, "optim__final_lr": 4e-4}
    settings = made_up((a_run(optim__lr=4e-3, **own), 3.5))
    found = recommend(a_run(optim__lr=1e-3), {"optim.lr"}, settings).run.optim
    rates = (found.lr, found.input_lr, found.final_lr)
    assert rates == pytest.approx((1e-3, 2e-3, 1e-4))


def test_rates_of_another_rate_are_not_left_standing() -> None:
    """A run that has rates of its own beside the one that is replaced: unless they are given."""
    own = {"optim__lr": 1e-4, "optim__input_lr": 5e-5, "optim__muon_lr": 3e-4}
    run = a_run(optim__algorithm="muon", **own)
    settings = sweep({92: {2e-3: 3.4}}, optim__algorithm="muon")
    found = recommend(run, (), settings)
    optim = found.run.optim
    assert (optim.lr, optim.input_lr, optim.muon_lr) == (2e-3, None, None)
    assert "input_lr" not in told(found)
    optim = recommend(run, {"optim.input_lr", "optim.muon_lr"}, settings).run.optim
    assert (optim.lr, optim.input_lr, optim.muon_lr) == (2e-3, 5e-5, 3e-4)


# --- between and beyond numbers of tokens --------------------------------------------------------


@given(
    st.dictionaries(
        st.sampled_from((46, 92, 184, 368)),
        st.dictionaries(st.sampled_from(LADDER), losses, min_size=1),
        min_size=1,
    ),
    st.floats(5, 3000),
)
def test_no_rate_is_chosen_outside_of_those_tried(
    tried: dict[int, dict[float, float]], millions: float
) -> None:
    settings = sweep(tried)
    found = rate(a_run(millions), settings)
    rates = [lr for here in tried.values() for lr in here]
    assert min(rates) <= found <= max(rates)
    random.Random(0).shuffle(settings)
    assert rate(a_run(millions), settings) == found  # in whatever order they are


def test_between_two_numbers_of_tokens_it_is_a_line_in_logarithms() -> None:
    both = (8e-3, 2e-3)
    settings = sweep({46: {both[0]: 4.0, 1.6e-2: 5.0}, 184: {both[1]: 3.4, 8e-3: 3.6}})
    assert rate(a_run(92), settings) == pytest.approx(4e-3)
    for millions, wanted in ((46, 8e-3), (184, 2e-3), (5, 8e-3), (5000, 2e-3)):
        assert rate(a_run(millions), settings) == wanted
    rates = [rate(a_run(m), settings) for m in range(46, 185, 6)]
    assert rates == sorted(rates, reverse=True)


def test_where_one_rate_was_tried_nothing_is_known_of_the_best() -> None:
    single = {368: {8e-3: 3.0}}
    assert rate(a_run(368), sweep(single)) == 8e-3
    assert rate(a_run(368), sweep({184: {4e-3: 3.4, 8e-3: 3.5}, **single})) == 4e-3


def test_the_rate_falls_with_the_width() -> None:
    """In proportion, less so with Muon; nuGPT's rates are those of a base, which they follow. It
    does not rise: nothing is known of rates beyond those that were tried."""
    settings = sweep({92: {2e-3: 3.5, 4e-3: 3.4, 8e-3: 3.5}})
    for width, wanted in ((256, 4e-3), (512, 4e-3), (1024, 2e-3), (4096, 5e-4)):
        assert rate(a_run(model__d_model=width), settings) == wanted
    wide = {"model__d_model": 1024}
    assert "times 0.5 for the width (docs" in told(recommend(a_run(**wide), (), settings))
    assert "for the width" not in told(recommend(a_run(**wide), {"optim.lr"}, settings))
    nugpt = a_run(**wide, optim__lr_groups="nugpt", optim__base_d_model=512)
    assert rate(nugpt, settings) == 4e-3
    assert rate(a_run(**wide, optim__base_d_model=512), settings) == 2e-3, "without them it is none"
    muon: dict[str, Any] = {"optim__algorithm": "muon", "optim__lr": 8e-3, "optim__muon_lr": 4e-3}
    made = recommend(a_run(optim__algorithm="muon", **wide), (), made_up((a_run(**muon), 3.4)))
    assert (made.run.optim.lr, made.run.optim.muon_lr) == (4.76e-3, 2.38e-3)  # 8e-3 · 2^-3/4


# --- which runs ----------------------------------------------------------------------------------


def test_a_schedule_wins_by_its_loss_unless_one_is_asked_for() -> None:
    settings = sweep({46: {8e-3: 4.0}}, optim__schedule="linear")
    settings += sweep({46: {4e-3: 4.2}}, optim__schedule="wsd")
    assert recommend(a_run(46), (), settings).run.optim.schedule == "linear"
    wsd = recommend(a_run(46, optim__schedule="wsd"), {"optim.schedule"}, settings)
    assert (wsd.run.optim.schedule, wsd.run.optim.lr) == ("wsd", 4e-3)
    log = recommend(a_run(46, optim__schedule="log"), {"optim.schedule"}, settings)
    assert (log.run.optim.schedule, log.run.optim.lr) == ("log", 8e-3)
    assert "another optim.schedule" in log.lines[1]


def test_in_the_middle_between_two_numbers_of_tokens_the_larger_one_decides() -> None:
    short = sweep({46: {4e-3: 3.0}}, optim__schedule="cosine")
    long = sweep({184: {4e-3: 3.0}}, optim__schedule="linear")
    for settings in ([*short, *long], [*long, *short]):
        assert recommend(a_run(92), (), settings).run.optim.schedule == "linear"
        assert recommend(a_run(91), (), settings).run.optim.schedule == "cosine"


def test_a_warmup_of_almost_the_whole_run_ends_before_it() -> None:
    settings = sweep({92: {4e-3: 3.0}}, optim__warmup_steps=1403)  # of 1404
    made = recommend(a_run(46), (), settings).run
    assert (made.optim.warmup_steps, made.train.steps) == (701, 702)


def test_the_kind_comes_before_the_size() -> None:
    settings = sweep({92: {8e-3: 3.6}}) + sweep({92: {2e-3: 3.4}}, optim__algorithm="muon")
    far = {"model__n_layers": 30, "model__context": 256}
    assert rate(a_run(**far), settings) == 8e-3
    assert rate(a_run(optim__algorithm="muon", **far), settings) == 2e-3
    capped = recommend(a_run(optim__algorithm="muon", optim__angle_cap=0.1), (), settings)
    assert capped.run.optim.lr == 2e-3
    assert capped.basis.unlike == ("optim.angle_cap",)
    settings += sweep({92: {1e-3: 3.0}}, model__qk_norm=False)  # one field differs, too
    assert rate(a_run(optim__algorithm="muon", model__qk_norm=False), settings) == 2e-3


def test_within_the_tokens_of_a_series_they_are_no_distance() -> None:
    """Half as many layers here with up to eight times the tokens, four times as many there."""
    settings = sweep({46: {8e-3: 4.0}, 368: {8e-3: 3.2}}, model__n_layers=4)
    settings += sweep({46: {4e-3: 3.8}}, model__n_layers=32)
    assert rate(a_run(46), settings) == 8e-3
    assert rate(a_run(46, model__n_layers=32), settings) == 4e-3


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_an_algorithm_that_was_not_measured_takes_the_rates_of_the_plain_one(arch: str) -> None:
    """Muon is another algorithm than GatedAdamW, too, and further from it than AdamW is."""
    settings = sweep({92: {4e-3: 3.6}}, model__arch=arch)
    settings += sweep({92: {2e-3: 3.4}}, model__arch=arch, optim__algorithm="muon")
    gated = a_run(model__arch=arch, optim__algorithm="gated_adamw")
    for tried in (settings, settings[::-1]):
        made = recommend(gated, (), tried)
        assert (made.run.optim.lr, made.basis.unlike) == (4e-3, ("optim.algorithm",))


def test_the_series_is_the_nearest_in_size_and_in_tokens() -> None:
    """Half as many layers here, twice as many there."""
    settings = sweep({46: {8e-3: 4.0}, 92: {8e-3: 3.7}}, model__n_layers=4)
    settings += sweep({184: {4e-3: 3.4}, 368: {4e-3: 3.2}}, model__n_layers=16)
    assert rate(a_run(92), settings) == 8e-3
    assert rate(a_run(184), settings) == 4e-3
    assert rate(a_run(92, model__n_layers=32), settings) == 4e-3
    assert rate(a_run(184, model__n_layers=2), settings) == 8e-3


def test_a_sweep_counts_more_than_a_nearer_single_rate() -> None:
    """As far as ONE_RATE says: 1k beside 4k, but not 256."""
    settings = sweep({92: {8e-3: 3.6}}, model__context=1024)
    settings += sweep({92: {2e-3: 3.5, 4e-3: 3.4, 8e-3: 3.5}})
    assert rate(a_run(model__context=1024), settings) == 4e-3
    assert rate(a_run(model__context=256), settings) == 4e-3
    settings += sweep({92: {1e-3: 3.6}}, model__context=256)
    assert rate(a_run(model__context=256), settings) == 1e-3


def test_muons_rate_is_a_multiple_that_is_tuned_by_itself() -> None:
    muon: dict[str, Any] = {"optim__algorithm": "muon", "optim__lr": 8e-3}
    runs = [(a_run(optim__muon_lr=lr, **muon), loss) for lr, loss in ((4e-3, 3.5), (1.6e-2, 3.7))]
    settings = made_up((a_run(**muon), 3.6), *runs)
    made = recommend(a_run(optim__algorithm="muon"), (), settings)
    assert (made.run.optim.lr, made.run.optim.muon_lr) == (8e-3, 4e-3)
    assert "0.008 and 0.004 for Muon at 92M tokens (best of 3 pairs tried)" in made.lines[1]
    rates = [(a_run(**muon | {"optim__lr": lr}), loss) for lr, loss in ((4e-3, 3.4), (1.6e-2, 3.8))]
    made = recommend(a_run(optim__algorithm="muon"), (), [*settings, *made_up(*rates)])
    assert "0.004 and 0.004 for Muon at 92M tokens (best of 5 pairs tried)" in made.lines[1]
    rates = [(a_run(**muon | {"optim__lr": lr}), 3.8) for lr in (2e-3, 4e-3)]
    rates += [(a_run(**muon | {"optim__lr": 1.6e-2}), 3.7), (a_run(**muon), 3.3)]
    made = recommend(a_run(optim__algorithm="muon"), (), made_up(*runs, *rates))
    assert made.run.optim.lr not in (2e-3, 4e-3, 8e-3, 1.6e-2)
    assert "(read off 6 pairs tried)" in made.lines[1]
    settings = made_up((a_run(**muon), 3.6))
    assert recommend(a_run(optim__algorithm="muon"), (), settings).run.optim.muon_lr is None


def test_muons_multiple_lies_between_those_of_two_numbers_of_tokens() -> None:
    """One at 46M tokens, a quarter at 184M: a half in the middle."""
    muon: dict[str, Any] = {"optim__algorithm": "muon", "optim__lr": 8e-3}
    ends = {(46, 8e-3): 3.9, (46, 4e-3): 4.0, (184, 2e-3): 3.4, (184, 8e-3): 3.5}
    runs = [(a_run(m, optim__muon_lr=lr, **muon), loss) for (m, lr), loss in ends.items()]
    made = recommend(a_run(92, optim__algorithm="muon"), (), made_up(*runs))
    assert (made.run.optim.lr, made.run.optim.muon_lr) == (8e-3, 4e-3)


# --- values --------------------------------------------------------------------------------------


def test_starting_values_follow_depth_width_and_steps() -> None:
    gpt = sweep(
        {92: {2e-3: 3.9}},
        model__arch="gpt",
        model__init_std=1 / math.sqrt(512),
        optim__warmup_steps=140,
        optim__weight_decay=0.1,
        optim__final_lr=2e-4,
    )
    wide = a_run(model__arch="gpt", model__d_model=1024, train__steps=50)
    made = recommend(wide, (), gpt).run
    assert made.model.init_std == pytest.approx(1 / 32, rel=2e-3)  # three digits
    assert (made.optim.warmup_steps, made.optim.weight_decay) == (5, 0.1)
    assert made.optim.final_lr == pytest.approx(made.optim.lr / 10)
    alphas = {"model__alpha_attn": {"init": 0.125}, "model__alpha_mlp": {"init": 0.125}}
    ngpt = sweep({92: {8e-3: 3.6}}, model__s_z={"init": 10.0}, **alphas)
    for layers, alpha in ((8, 0.125), (16, 0.0625), (4, 0.25), (1, 0.5)):
        model = recommend(a_run(model__n_layers=layers), (), ngpt).run.model
        assert (model.alpha_attn.init, model.alpha_mlp.init) == (alpha, alpha)
        assert model.s_z.init == 10


@given(st.sets(st.sampled_from(CHOSEN)), st.sampled_from(("gpt", "ngpt")))
def test_what_is_given_stays_and_what_was_chosen_is_taken_over(given: set[str], arch: str) -> None:
    run = presets.get(f"{arch}-small")
    before = dict(flatten(to_dict(run)))
    made = recommend(run, given)  # from what was really measured
    after = dict(flatten(to_dict(made.run)))
    changed = {name for name in after.keys() | before if after.get(name) != before.get(name)}
    assert changed <= set(made.chosen) <= set(CHOSEN) - given
    assert override(run, taken_over(made.run, given)) == made.run


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_the_smallest_run_is_sound(arch: str) -> None:
    run = override(presets.get(f"{arch}-debug"), {"optim.warmup_steps": 0, "train.steps": 1})
    assert recommend(run).run.optim.warmup_steps == 0


# --- words ---------------------------------------------------------------------------------------


def told(made: Recommendation) -> str:
    first, second = made.lines
    assert "\n" not in first + second
    return second


def test_the_lines_say_what_and_from_what_and_how_far_away() -> None:
    settings = sweep({92: {2e-3: 3.5, 4e-3: 3.4, 8e-3: 3.5}}, optim__schedule="linear")
    made = recommend(a_run(), (), settings)
    assert made.lines[0].startswith(
        "no rate is given, so chosen from measured runs: optim.lr 0.004, optim.schedule linear"
    )
    assert told(made) == (
        "measured with 8 layers of width 512 in context 4096, 65,536 tokens a step: 0.004 at 92M "
        "tokens (tried: 0.002, 0.004, 0.008); this run is like those (page)"
    )
    far = recommend(a_run(368, model__n_layers=20, model__context=1024), (), settings)
    assert told(far).endswith(
        "this run has 2.5 times the parameters in blocks (83.9M), 1/4 of the context (1024), "
        "4 times the tokens (368M): a guess there (page)"
    )


@pytest.mark.parametrize(
    ("millions", "says"),
    [
        (100, "this run is like those"),
        (115, "1.2 times the tokens (115M)"),
        (64, "70 % of the tokens (64M)"),
        (23, "1/4 of the tokens (23M)"),
        (2300, "25 times the tokens (2.3B)"),
    ],
)
def test_a_difference_of_a_fifth_is_worth_a_word(millions: int, says: str) -> None:
    settings = sweep({92: {2e-3: 3.5, 4e-3: 3.4, 8e-3: 3.5}})
    assert says in told(recommend(a_run(millions), (), settings))


def test_the_lines_say_where_the_best_was_not_found() -> None:
    with_decay = sweep({92: {4e-3: 3.4}}, model__arch="gpt", optim__weight_decay=0.3)
    without = sweep({92: {2e-3: 3.6, 4e-3: 3.5, 8e-3: 3.6}}, model__arch="gpt")
    alone = recommend(a_run(model__arch="gpt"), (), [*with_decay, *without])
    assert "0.004 at 92M tokens (the only rate tried with these values)" in told(alone)
    for lr, side in ((1e-3, "below"), (4e-3, "above")):
        settings = sweep({92: {1e-3: 3.5, 4e-3: 3.5, lr: 3.4}})
        words = f"{lr:g} at 92M tokens (tried: 0.001, 0.004; the best may lie {side})"
        assert words in told(recommend(a_run(), (), settings))
    two = sweep({46: {8e-3: 4.0, 4e-3: 5.0}, 184: {2e-3: 3.4, 4e-3: 3.6}})
    assert "0.008 at 46M tokens (tried" in told(recommend(a_run(), (), two))
    assert ") and 0.002 at 184M tokens (tried" in told(recommend(a_run(), (), two))


def test_an_algorithm_that_ended_lower_is_named_unless_one_is_asked_for() -> None:
    plain = sweep({92: {4e-3: 4.0, 8e-3: 3.9}})
    muon = {"optim__algorithm": "muon"}
    better = [*plain, *sweep({92: {8e-3: 3.8}}, **muon)]
    assert recommend(a_run(), (), better).lines[2:] == (
        "with --optim.algorithm muon such runs ended 0.10 lower at 92M tokens",
    )
    assert len(recommend(a_run(), {"optim.algorithm"}, better).lines) == 2
    assert len(recommend(a_run(**muon), (), better).lines) == 2  # it is the best
    others = {
        "within chance": sweep({92: {8e-3: 3.86}}, **muon),
        "at other tokens": sweep({46: {8e-3: 3.8}}, **muon),
        "of another model": sweep({92: {8e-3: 3.8}}, model__qk_norm=False, **muon),
        "diverged": sweep({92: {8e-3: math.inf}}, **muon),
    }
    for why, settings in others.items():
        assert len(recommend(a_run(), (), [*plain, *settings]).lines) == 2, why
