"""Optuna's part: which values to try next (TPE), and which entries mattered (PED-ANOVA)."""

import math
import warnings
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

from regard.errors import UserError
from regard.tuning.trials import Ranking, Trial

if TYPE_CHECKING:
    import optuna

NEAR = 6  # trials near the chosen point come first; what they showed is what TPE starts from
STAYS = 0.6  # the chance that one of them leaves an entry as it was chosen
FAR = 2  # places in the list of values that it else moves at most
TRIES = 20  # to find values that no trial has had, before the first of those that are left is taken
FEWEST = 5  # trials that importance can be told from
BEST = 1 / 3  # PED-ANOVA compares these with all

Space = dict[str, list[Any]]  # by entry: its values in order


def need_optuna() -> None:
    """Before anything is read or trained."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UserError('regard tune needs Optuna, which is not installed: pip install "regard[tune]"') from None


def propose(space: Space, trials: Sequence[Trial], ranking: Ranking, seed: int) -> dict[str, Any] | None:
    """Values that no trial has had; a function of the trials so far and the seed. None: there are no others."""
    tried = [trial.values for trial in trials]
    for attempt in range(TRIES):
        chance = Random(f"regard tune {seed} {len(trials)} {attempt}")
        values = near(space, tried[0], chance) if len(trials) <= NEAR else by_tpe(space, trials, ranking, chance)
        if values not in tried:
            return values
    points = (dict(zip(space, values, strict=True)) for values in product(*space.values()))
    return next((values for values in points if values not in tried), None)


def near(space: Space, chosen: dict[str, Any], chance: Random) -> dict[str, Any]:
    return {
        name: chosen[name] if chance.random() < STAYS else chance.choice(neighbours(values, chosen[name]))
        for name, values in space.items()
    }


def neighbours(values: list[Any], chosen: Any) -> list[Any]:
    place = values.index(chosen)
    return [value for value in values[max(place - FAR, 0) : place + FAR + 1] if value != chosen]


def by_tpe(space: Space, trials: Sequence[Trial], ranking: Ranking, chance: Random) -> dict[str, Any]:
    """The tree-structured Parzen estimator (Bergstra et al. 2011); trials that came further count as better."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=chance.randrange(2**31), n_startup_trials=0, multivariate=True)
    study = study_of(ranking, sampler)
    study.add_trials([as_optuna(space, trial, ranking) for trial in trials])
    asked = study.ask(distributions(space))
    return {name: values[asked.params[name]] for name, values in space.items()}


def study_of(ranking: Ranking, sampler: Any = None) -> "optuna.Study":
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(direction="maximize", sampler=sampler)


def distributions(space: Space) -> dict[str, Any]:
    """The place of a value in its list: all of them have an order, or are two."""
    from optuna.distributions import IntDistribution

    return {name: IntDistribution(0, len(values) - 1) for name, values in space.items()}


def as_optuna(space: Space, trial: Trial, ranking: Ranking, rung: int | None = None) -> "optuna.trial.FrozenTrial":
    """Where it stands now: one that was dropped is `pruned` at its rung. Or as if all had ended at `rung`."""
    from optuna.trial import TrialState, create_trial

    worths = {one.rung: ranking.worth(one)[0] for one in trial.reached if one.rung and one.score is not None}
    places = {name: values.index(trial.values[name]) for name, values in space.items()}
    ended = trial.last is not None and trial.last.ended and not trial.failed
    value = ranking.worth(trial.last if rung is None else trial.at(rung))[0] if ended or rung is not None else None
    whole = value is not None and math.isfinite(value)
    return create_trial(
        state=TrialState.COMPLETE if whole else TrialState.PRUNED, value=value if whole else None, params=places,
        distributions=distributions(space), intermediate_values={} if trial.failed else worths,
    )  # fmt: skip


def importance(space: Space, trials: Sequence[Trial], ranking: Ranking) -> dict[str, float]:
    """The share of each entry in telling the best third of the trials from all, at the first rung, which all have reached
    (PED-ANOVA, Watanabe et al. 2023). Nothing where there are too few trials."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    there = ranking.at(1, trials)
    worths = {ranking.worth(trial.at(1))[0] for trial in there}
    if len(there) < FEWEST or len(worths) < 2:
        return {}
    study = study_of(ranking)
    study.add_trials([as_optuna(space, trial, ranking, rung=1) for trial in there])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is experimental, and says so
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=BEST))
    return {name: round(float(share), 4) for name, share in found.items()}
