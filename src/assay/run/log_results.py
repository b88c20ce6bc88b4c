"""What TensorBoard, MLflow and W&B get at the end of a run, beside what Lightning has logged on the way."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

from assay.figure.to_matplotlib import to_matplotlib
from assay.record.failure_cause import reason_of
from assay.record.secrets import redact_tree
from assay.task.own_task.answers import scores_of
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.build.assembly import Assembly
    from assay.record.run_record import RunRecord
    from assay.task.prediction.predictions import Predictions

log = logging.getLogger("assay")
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]+", re.ASCII)


def log_results(assembly: Assembly, metrics: Mapping[str, float], predictions: Predictions | None) -> None:
    """Log scores that only the predictions tell, hyperparameters with the scores, and the task's figures.

    Where that fails, a warning says so: the run has come to its end all the same.

    Args:
        assembly: The job, tested; logs on its first process alone.
        metrics: Final scores.
        predictions: Of the test; None where there are none.
    """
    known = TensorBoardLogger | MLFlowLogger | WandbLogger
    loggers = [one for one in assembly.trainer.loggers if isinstance(one, known)]
    if not loggers or not assembly.trainer.is_global_zero:
        return
    try:
        scores, figures = _seen(predictions, metrics)
        for logger in loggers:
            _log(logger, assembly, {**metrics, **scores}, scores, figures)
    except Exception as error:
        log.warning("scores and figures are not in every log: %s", reason_of(error), exc_info=error)


def _seen(
    predictions: Predictions | None, metrics: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Scores that nobody has logged yet, and figures by their names."""
    if predictions is None or not len(predictions.keys):
        return {}, {}
    task = task_of(predictions.task)
    scores = {name_of(predictions.subset, one.name): one.value for one in scores_of(task, predictions)}
    figures = {one.name: to_matplotlib(one) for one in task.figures(predictions)}
    return {name: value for name, value in scores.items() if name not in metrics}, figures


def name_of(subset: str, score: str) -> str:
    """What a score is logged as: without what MLflow takes in no name.

    >>> name_of("test", "f1 (macro)")
    'test/f1_macro'
    """
    return f"{subset}/{_NOT_IN_NAMES.sub('_', score).strip('_')}"


def end_wandb(record: RunRecord) -> None:
    """End the run of Weights & Biases that this run has begun; what the process trains next would go into it.

    Args:
        record: Of a run that has ended.
    """
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None and wandb.run.id in record.loggers.values():
        wandb.finish(exit_code=0 if record.status == "finished" else 1)


def _log(
    logger: TensorBoardLogger | MLFlowLogger | WandbLogger,
    assembly: Assembly,
    metrics: Mapping[str, float],
    scores: dict[str, float],
    figures: Mapping[str, Any],
) -> None:
    step = assembly.trainer.global_step
    if scores:
        logger.log_metrics(scores, step)
    if isinstance(logger, WandbLogger):
        for name, figure in figures.items():
            logger.log_image(f"figures/{name}", [figure], step)
        return
    if isinstance(logger, MLFlowLogger):  # has the hyperparameters, and shows them beside the last scores
        for name, figure in figures.items():
            logger.experiment.log_figure(logger.run_id, figure, f"figures/{name}.png")
        return
    # Under names of their own: TensorBoard's page of hyperparameters wants each score as a scalar of step 0.
    finals = {f"final/{name}": value for name, value in metrics.items() if name.startswith(("test/", "val/"))}
    logger.log_hyperparams(redact_tree(assembly.plain), finals)
    for name, figure in figures.items():
        logger.experiment.add_figure(name, figure, step, close=False)
    logger.experiment.close()
